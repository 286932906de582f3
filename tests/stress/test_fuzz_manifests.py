"""Hostile manifests end in findings; `make fuzz-manifests` checks a hundred thousand of them."""

from __future__ import annotations

import pytest

from tests.stress.fuzz_manifests import Chunk, Place, chunk, stray, watch
from tests.stress.hostile_kinds import KINDS

SEEDS = [900_001, *(pytest.param(n, marks=pytest.mark.full) for n in (900_002, 900_003))]
FILES = 120


@pytest.mark.parametrize("seed", SEEDS)
def test_hostile_manifests_raise_nothing_and_open_nothing_else(seed: int) -> None:
    done = chunk(Chunk(seed, FILES))
    assert done.counts.total() == FILES
    assert {kind for kind, _ in done.counts} >= KINDS.keys() - {"bombs"}
    assert sum(done.counts[kind, "findings"] for kind in KINDS) > FILES / 2
    assert done.resolved


def test_the_fuzz_hears_of_files_outside(tmp_path_factory: pytest.TempPathFactory) -> None:
    place = Place(tmp_path_factory.mktemp("place"))
    place.fill()
    heard = watch()
    heard.opened.clear()
    heard.on = True
    (place.root / "outside").read_text()
    (place.inside / "secrets/default/pg/dsn").read_text()
    heard.on = False
    assert stray(heard.opened, place.inside) == [str(place.root / "outside")]
