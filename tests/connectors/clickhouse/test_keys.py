"""Keys that ClickHouse finds equal are one key, however their rows are cut into INSERTs."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

import devservers
from dataflow_assets.contracts import DELETE, OP
from tests.connectors.clickhouse.driver import Place, start, store

AT = datetime(2026, 1, 1, tzinfo=UTC)
KEYS: dict[str, list[Any]] = {
    "FixedString(3)": ["a", "a", "b"],
    "LowCardinality(String)": ["a", "A", "a"],
    "Decimal(6, 2)": [Decimal("1.00"), Decimal("1.10"), Decimal("1.00")],
    "Float64": [0.0, -0.0, 1.0],
    "DateTime64(3, 'UTC')": [AT, AT.replace(microsecond=1000), AT],
    "UUID": ["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
    "IPv4": ["10.0.0.1", "10.0.0.2", "10.0.0.1"],
}


@pytest.mark.parametrize("kind", KEYS)
def test_a_micro_batch_leaves_what_its_rows_would_one_by_one(
    clickhouse: devservers.ClickHouse, database: str, kind: str
) -> None:
    found = []
    one, other = KEYS[kind][0], KEYS[kind][1]
    rows = [*({"k": key, "v": n} for n, key in enumerate(KEYS[kind])), {"k": one, OP: DELETE}]
    rows += [{"k": other, "v": 9}]
    for cut in (len(rows), 1):
        place = Place(clickhouse.dsn(database), f"t{cut}")
        place.options = {"upsertMode": True, "conflictKey": "k", "deleteMode": "hard"}
        place.run(
            f"create table {place.table} (k {kind}, v Nullable(Int64), _version UInt64, "
            "_deleted UInt8) engine = ReplacingMergeTree(_version, _deleted) order by k "
            "settings non_replicated_deduplication_window = 100"
        )
        session = start(place.sink())
        for at in range(0, len(rows), cut):
            store(place.sink(), rows[at : at + cut], session=session)
        session.close()
        found.append(place.run(f"select k = k, v from {place.table} final order by k, v"))
    assert found[0] == found[1] != []
