"""An upsert keeps a bounded piece of a slice in memory; the pieces of a slice are one commit."""

from __future__ import annotations

import random
from typing import Any

import pytest

import devservers
from dataflow_assets.connectors.postgresql.sink import fold_keys, load
from tests.connectors.postgresql.driver import Place, start, store
from tests.connectors.postgresql.test_upsert import MODES, _random_records


@pytest.fixture
def place(postgresql: devservers.PostgreSQL, schema: str) -> Place:
    return Place(postgresql.dsn(), schema, options={"upsertMode": True})


@pytest.mark.parametrize("mode", MODES)
def test_pieces_of_a_slice_equal_the_whole(
    place: Place, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = "(id bigint PRIMARY KEY, a int, b int DEFAULT 7, ver int, gone timestamptz)"
    place.run(f"CREATE TABLE whole {columns}; CREATE TABLE pieces {columns}")
    deletes = "soft" in mode or "hard" in mode
    records = [
        record for seed in range(4) for record in _random_records(random.Random(seed), deletes)
    ]
    found = {}
    for table, most in {"whole": load.FOLDED_BYTES, "pieces": 1}.items():
        monkeypatch.setattr(load, "FOLDED_BYTES", most)
        place.table = table
        session = start(place.sink(**MODES[mode]))
        session.restart({"0": 0}, "t1")
        store(
            place.sink(**MODES[mode]),
            *(records[at : at + 7] for at in range(0, len(records), 7)),
            session=session,
        )
        session.close()
        found[table] = place.rows("id, a, b, ver, gone IS NULL")
    assert found["pieces"] == found["whole"]


def test_memory_does_not_grow_with_the_slice(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "FOLDED_BYTES", 100_000)
    kept: list[int] = []
    steps = fold_keys.steps

    def spy(rows: Any, group: Any, rules: Any) -> Any:
        kept.append(rows.nbytes)
        return steps(rows, group, rules)

    monkeypatch.setattr(fold_keys, "steps", spy)
    place.run("CREATE TABLE orders (id bigint PRIMARY KEY, name text NOT NULL)")
    batches = [[{"id": at * 10 + n, "name": "x" * 2_000} for n in range(10)] for at in range(50)]
    batches[30][5]["name"] = None
    session = store(place.sink(), *batches)
    assert max(kept) < 130_000
    assert len(kept) > 8
    assert len(place.rows("id")) == 499
    ((offset, _, _, reason, body),) = place.rejected()
    assert (offset, body) == (305, "body 305")
    assert "23502" in reason
    assert session.checkpoint.totals.rows == 499
    session.close()
