"""The stream of a binary COPY: columns with nulls and without, across the blocks of a batch."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

import devservers
from dataflow_assets.connectors.postgresql import copy_format
from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure
from dataflow_assets.connectors.postgresql.sink import encode_copy
from tests.connectors.postgresql.driver import Place, store

MOMENT = dt.datetime(1969, 7, 20, 20, 17, 40, 123456, dt.UTC)
KINDS: dict[str, tuple[str, Any]] = {
    "b": ("boolean", True),
    "i2": ("smallint", -(2**15)),
    "i4": ("integer", 2**31 - 1),
    "i8": ("bigint", -(2**63)),
    "f4": ("real", 1.5),
    "f8": ("double precision", float("-inf")),
    "d": ("date", dt.date(1, 1, 1)),
    "ts": ("timestamp", MOMENT.replace(tzinfo=None)),
    "tz": ("timestamptz", MOMENT),
    "t": ("text", "é\n\\."),
    "j": ("json", '{"a": 1}'),
    "jb": ("jsonb", '{"a": 1}'),
    "u": ("uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    "n": ("numeric", "-12345.60"),
}
ROWS = 40_000  # more than two blocks


@pytest.mark.parametrize("every", [1, 2, 30_000, 10**9], ids=["all", "half", "two", "none"])
def test_what_is_null_stays_null_and_all_else_is_kept(
    postgresql: devservers.PostgreSQL, schema: str, every: int
) -> None:
    place = Place(postgresql.dsn(), schema)
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in KINDS.items())
    place.run(f"CREATE TABLE orders ({columns}, id int)")
    full = {name: value for name, (_, value) in KINDS.items()}
    store(
        place.sink(), [{"id": i, **(full if (i + 1) % every else {})} for i in range(ROWS)]
    ).close()
    same = " AND ".join(f"{n}::text = '{_shown(v)}'" for n, (_, v) in KINDS.items())
    none = " AND ".join(f"{name} IS NULL" for name in KINDS)
    empty = len([i for i in range(ROWS) if not (i + 1) % every])
    counts = f"count(DISTINCT id), count(*) FILTER (WHERE {same}), count(*) FILTER (WHERE {none})"
    assert place.rows(counts) == [(ROWS, ROWS - empty, empty)]


def _shown(value: Any) -> str:
    special = {True: "true", float("-inf"): "-Infinity"}
    if isinstance(value, dt.datetime):
        return f"{value.replace(tzinfo=None)}{'+00' if value.tzinfo else ''}"
    return special.get(value) or (value.isoformat() if isinstance(value, dt.date) else str(value))


def test_a_time_beyond_the_format_is_refused_not_wrapped() -> None:
    rows = pa.record_batch([pa.array([1 - 2**63], pa.timestamp("us"))], ["at"])
    with pytest.raises(PostgresqlFailure, match=r"timestamp out of range \(22008, column at\)"):
        list(copy_format.stream(copy_format.in_stream_order(encode_copy.binary(rows))))
