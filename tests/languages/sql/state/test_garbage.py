"""Files of states that nobody needs, without servers: which are deleted, and whose never are."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from dataflow_assets.contracts import Positions
from dataflow_assets.languages.sql.state.compute import folder_of
from dataflow_assets.languages.sql.state.files import StateFiles
from dataflow_assets.languages.sql.state.garbage import DAY, collect
from dataflow_assets.languages.sql.state.manifest import (
    VIEW,
    Manifest,
    Position,
    StateTable,
    new_manifest,
    position_of,
)
from dataflow_assets.languages.sql.state.options import StateLocation
from dataflow_assets.languages.sql.state.positions import PAST
from dataflow_assets.languages.sql.state.session import ViewSession

AT = datetime(2026, 1, 1, tzinfo=UTC)
EARLIER, LATER = "1", "2"
"""Two generations, of which the second one begins later."""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateFiles:
    monkeypatch.setenv("DATAFLOW_FILES", str(tmp_path))
    return StateFiles(StateLocation.model_validate({"path": f"{tmp_path}/_state"}), "default/o.s")


def _state(files: StateFiles, position: Position) -> dict[str, Manifest]:
    """The files of one micro-batch, and an orphan beside them."""
    folder = folder_of(position.generation, position.number, "x")
    kept = files.write(f"{folder}/kept", b"kept", 1)
    files.write(f"{folder}/orphan", b"orphan", 1)
    found = new_manifest(
        shape="",
        query="",
        number=position.number,
        at=AT,
        offsets={},
        tables={"groups-0": StateTable((kept,))},
    )
    files.write(f"{folder}/manifest.json", b"", 0)
    return {f"{folder}/manifest.json": found}


def _left(files: StateFiles, generation: str) -> list[str]:
    return [name.rpartition("/")[2] for name in files.times() if name.startswith(generation)]


def test_of_an_own_state_what_it_does_not_name_is_deleted(files: StateFiles) -> None:
    first, second = Position({}, EARLIER, 1), Position({}, EARLIER, 2)
    known = {**_state(files, first), **_state(files, second)}
    _state(files, Position({}, EARLIER, 3))
    collect(files, second, known)
    assert sorted(_left(files, EARLIER)) == sorted(
        ["kept", "manifest.json"] * 2 + ["kept", "manifest.json", "orphan"]
    )


@pytest.mark.parametrize(("own", "other"), [(EARLIER, LATER), (LATER, EARLIER)])
def test_a_state_of_another_deployment_stays(files: StateFiles, own: str, other: str) -> None:
    """Two deployments have a flow of one name, and one location: both states are of use."""
    _state(files, Position({}, other, 1))
    position = Position({}, own, 7)
    collect(files, position, _state(files, position))
    assert _left(files, other) == ["kept", "manifest.json", "orphan"]
    assert _left(files, own) == ["kept", "manifest.json"]


@pytest.mark.parametrize(("age", "left"), [(DAY // 2, ["orphan"]), (2 * DAY, [])])
def test_what_a_first_micro_batch_has_left_is_deleted_after_a_day(
    files: StateFiles, tmp_path: Path, age: int, left: list[str]
) -> None:
    files.write(f"{folder_of(EARLIER, 1, 'x')}/orphan", b"orphan", 1)
    (orphan,) = tmp_path.rglob("orphan")
    at = time.time_ns() - age
    os.utime(orphan, ns=(at, at))
    position = Position({}, LATER, 1)
    collect(files, position, _state(files, position))
    assert (_left(files, EARLIER), _left(files, LATER)) == (left, ["kept", "manifest.json"])


@pytest.mark.parametrize(("old", "new"), [(EARLIER, LATER), (LATER, EARLIER)])
def test_a_driver_that_was_taken_over_deletes_nothing_of_a_state_that_was_built_again(
    files: StateFiles, old: str, new: str
) -> None:
    """Also where the clock of the machine that has built it again was behind."""
    before, after = Position({}, old, 5), Position({}, new, 1, past=(old,))
    known = _state(files, before)
    newer = _state(files, after)
    collect(files, before, known)
    assert _left(files, new) == ["kept", "manifest.json", "orphan"]
    collect(files, after, newer)
    assert (_left(files, old), _left(files, new)) == ([], ["kept", "manifest.json"])


class _Session(ViewSession):
    def __init__(self) -> None:
        """Without what is connected: positions alone."""


def _rewound(before: Positions, *, stay: bool) -> Position:
    (text,) = _Session().rewound(Position({}, "3").positions(), before, stay=stay).values()
    return position_of(text)


@pytest.mark.parametrize("stay", [True, False])
def test_a_position_names_the_states_before_it(*, stay: bool) -> None:
    before = Position({}, LATER, 4, "2/manifest", "d", past=(EARLIER,))
    part = replace(before, number=5, state="2/next")
    found = _rewound({VIEW: before.text(), "part": part.text()}, stay=stay)
    assert found.past == (EARLIER, LATER)
    assert [one.state for one in found.earlier] == (["2/manifest", "2/next"] if stay else [])
    assert _rewound({"0": "17"}, stay=stay).past == ()


def test_a_position_stays_short_however_often_a_flow_begins_again() -> None:
    found = Position({}, "0")
    for number in range(2 * PAST):
        found = replace(_rewound(found.positions(), stay=False), generation=f"{number}")
    assert found.past == tuple(map(str, range(PAST - 1, 2 * PAST - 1)))
