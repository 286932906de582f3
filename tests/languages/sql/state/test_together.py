"""Many messages at once are what they are one by one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.contracts import OffsetSlice
from dataflow_assets.languages.sql.engine.function import Environment
from dataflow_assets.languages.sql.state import reading
from dataflow_assets.languages.sql.state.reading import StateRead, ViewReader, _KeyedRows
from dataflow_assets.languages.sql.state.source import ViewSource
from tests.languages.sql.test_rows import flow, table

NOW = datetime(2026, 7, 20, 10, tzinfo=UTC)
GROUPED = "INSERT INTO o SELECT {} FROM s {} GROUP BY {}"
INTO = "g STRING, n BIGINT, x BIGINT, PRIMARY KEY (g) NOT ENFORCED"
KEYED = "k BIGINT, g STRING, a INT, d DECIMAL(9, 2), t TIMESTAMP(3), PRIMARY KEY (k) NOT ENFORCED"
PLAIN = KEYED.partition(", PRIMARY")[0]
SENT: list[tuple[int, dict[str, Any] | None]] = [
    (1, {"k": 1, "g": "x", "a": 5, "d": 1.5, "t": "2026-01-01 00:00:00.5"}),
    (2, {"k": 2, "g": None, "a": "7", "d": None}),
    (1, None),
    (3, {"k": 3, "g": 4, "a": None, "more": {"k": [1]}}),
    (1, {"g": "y", "a": 2**31 - 1, "d": 12345678901, "t": None}),
    (2, {"g": "é\\", "k": 9, "a": 1.0}),
]
BAD = [b'{"a":', b'{"k":1,"k":2}', b"", b"[1]", b'{"k":1,"a":2147483648}', b'{"k":1,"g":"\\ud800"}']


def _reader(tmp_path: Path, columns: str, query: str, **options: str) -> ViewReader:
    source = flow(tmp_path, table("s", columns, **options), table("o", INTO), query).source
    assert isinstance(source, ViewSource)
    assert isinstance(source.source, KafkaSource)
    return ViewReader(source.source, "id", source.view, Environment("UTC", NOW))


def _batch(messages: Sequence[tuple[bytes | None, bytes | None]]) -> pa.RecordBatch:
    keys, bodies = zip(*messages, strict=True)
    times = pa.array([1_000 * at for at in range(len(keys))], pa.timestamp("ms", "UTC"))
    columns = {"_at": pa.array(range(len(keys))), "body": pa.array(bodies, pa.binary())}
    return pa.RecordBatch.from_pydict(
        {**columns, "key": pa.array(keys, pa.binary()), "timestamp": times}
    )


def _read(reader: ViewReader, batch: pa.RecordBatch, together: int) -> StateRead:
    with patch.object(reading, "TOGETHER", together):
        return reader.read(OffsetSlice("0", 0, batch.num_rows), [batch])


def _one_by_one(reader: ViewReader, batch: pa.RecordBatch) -> StateRead:
    with patch.object(_KeyedRows, "take_all", lambda *_: False):
        return _read(reader, batch, 4_096)


def _sorted(read: StateRead) -> tuple[Any, ...]:
    rows = sorted(map(repr, read.changes.to_pylist()))
    return rows, read.refused, read.records


def _json(key: int, row: dict[str, Any] | None) -> tuple[bytes | None, bytes | None]:
    return b'{"k":%d}' % key, None if row is None else json.dumps(row).encode()


@pytest.mark.parametrize(
    ("columns", "query", "options"),
    [
        (KEYED, GROUPED.format("g, COUNT(*), SUM(a)", "", "g"), {}),
        (KEYED, GROUPED.format("g, COUNT(t), SUM(k) FILTER (WHERE a > 1)", "WHERE a > 1", "g"), {}),
        (PLAIN, GROUPED.format("g, COUNT(*), MAX(a + 1)", "", "g"), {}),
        (PLAIN, GROUPED.format("g, COUNT(a), MAX(a)", "WHERE d IS NULL OR d > 2", "g"), {}),
        (
            f"{PLAIN}, p INT METADATA FROM 'partition' VIRTUAL",
            GROUPED.format("g, COUNT(*), SUM(p)", "", "g"),
            {},
        ),
        (
            KEYED.replace("k BIGINT", "k_k BIGINT").replace("(k)", "(k_k)"),
            GROUPED.format("g, COUNT(*), SUM(k_k)", "", "g"),
            {"value_fields-include": "EXCEPT_KEY", "key_fields-prefix": "k_"},
        ),
        (
            f"{PLAIN}, o_ BIGINT METADATA FROM 'offset' VIRTUAL",
            GROUPED.format("g, COUNT(*), SUM(o_)", "", "g"),
            {"key_format": "json", "key_fields": "k"},
        ),
    ],
)
def test_rows_keys_and_deletes_are_those_of_each_message(
    tmp_path: Path, columns: str, query: str, options: dict[str, str]
) -> None:
    reader = _reader(tmp_path, columns, query, **options)
    batch = _batch([_json(*one) for one in SENT * 3])
    wanted = _sorted(_one_by_one(reader, batch))
    with patch.object(reading, "_one_by_one", side_effect=AssertionError):
        assert _sorted(_read(reader, batch, 4_096)) == wanted
    assert _sorted(_read(reader, batch, 2)) == wanted


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("columns", [KEYED, PLAIN])
def test_one_that_cannot_be_read_is_refused_alone(tmp_path: Path, columns: str, bad: bytes) -> None:
    reader = _reader(tmp_path, columns, GROUPED.format("g, COUNT(*), SUM(a)", "", "g"))
    messages = [_json(*one) for one in SENT * 2]
    messages[5] = b'{"k":7}', bad
    found = _one_by_one(reader, _batch(messages))
    assert len(found.refused) == (0 if bad == b"" else 1)
    for together in (1, 4, 4_096):
        assert _sorted(_read(reader, _batch(messages), together)) == _sorted(found)


@pytest.mark.parametrize("key", [None, b"", b"{", b'{"k":null}', b'{"k":"\xff"}', b"-"])
def test_a_key_that_cannot_be_read_is_refused_alone(tmp_path: Path, key: bytes | None) -> None:
    reader = _reader(tmp_path, KEYED, GROUPED.format("g, COUNT(*), SUM(a)", "", "g"))
    messages = [_json(*one) for one in SENT]
    messages[2] = key, None
    found = _one_by_one(reader, _batch(messages))
    assert len(found.refused) == 1
    assert _sorted(_read(reader, _batch(messages), 4_096)) == _sorted(found)
