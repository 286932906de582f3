"""Staged rows folded and merged, against rows applied one by one."""

from __future__ import annotations

import random
from datetime import datetime
from typing import Any, cast
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from dataflow_assets.connectors.iceberg.merge.match import (
    IcebergRules,
    fold,
    key_bytes,
    merge_rows,
    new_rows,
)
from dataflow_assets.connectors.iceberg.merge.tasks import one_batch
from dataflow_assets.contracts import ABSENT, DELETE, INSERT, OP
from dataflow_assets.errors import PermanentError

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("part", pa.string()),
        ("name", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("gone_at", pa.timestamp("us", "UTC")),
    ]
)
UTC = ZoneInfo("UTC")
NOW = datetime(2024, 5, 6, tzinfo=UTC)
KEY = ("id", "part")
Row = dict[str, Any]


@pytest.mark.parametrize("soft", [None, "gone_at"])
@pytest.mark.parametrize("seed", range(60))
def test_merging_equals_applying_row_by_row(seed: int, soft: str | None) -> None:
    dice = random.Random(f"{seed}-{soft}")
    rules = IcebergRules(KEY, soft, NOW)
    model: dict[tuple[Any, ...], Row] = {}
    stored = pa.RecordBatch.from_pylist([], SCHEMA)
    for _ in range(4):
        rows = [_row(dice) for _ in range(dice.choice((1, 5, 40)))]
        for row in rows:
            _apply(model, row, soft)
        stored = _stored(stored, fold(_staged(rows), SCHEMA, rules), rules)
        assert sorted(map(repr, stored.to_pylist())) == sorted(
            repr({name: row.get(name) for name in SCHEMA.names}) for row in model.values()
        )


def test_rows_that_no_array_holds_together_are_not_cut_off() -> None:
    """More than 2 GiB of texts stay several chunks when Arrow is asked to make one of them."""

    class Large:
        def combine_chunks(self) -> Large:
            return self

        def to_batches(self) -> list[pa.RecordBatch]:
            return [pa.RecordBatch.from_pylist([{"id": number}]) for number in range(2)]

    with pytest.raises(PermanentError, match="more than 2 GiB in a column: set maxBytesPerBatch"):
        one_batch(cast("pa.Table", Large()))


def _stored(before: pa.RecordBatch, folded: Any, rules: IcebergRules) -> pa.RecordBatch:
    """What the driver's join and the tasks make of it: keys that no file holds are inserted."""
    known = set(key_bytes(before, SCHEMA, KEY).to_pylist())
    new = [key not in known for key in folded.keys.to_pylist()]
    apart = type(folded)(
        folded.keys, folded.columns, folded.carried, folded.gone, folded.new & np.array(new)
    )
    parts = [merge_rows(before, folded, rules), new_rows(apart, SCHEMA)]
    return (
        pa.Table.from_batches(parts, SCHEMA).combine_chunks().to_batches(max_chunksize=10**6)[0]
        if sum(part.num_rows for part in parts)
        else parts[0]
    )


def _row(dice: random.Random) -> Row:
    keyed: Row = {"id": dice.randrange(6), "part": dice.choice(["", "1:", "x"])}
    if dice.random() < 0.25:
        return keyed | {"op": DELETE}
    others: Row = {
        "name": dice.choice(["a", "b", None]),
        "tags": dice.choice([None, [], ["t", None]]),
    }
    if dice.random() < 0.1:
        others["gone_at"] = datetime(2020, 1, 1, tzinfo=UTC)
    return keyed | {name: value for name, value in others.items() if dice.random() < 0.6}


def _staged(rows: list[Row]) -> pa.RecordBatch:
    arrays = [pa.array([row.get(f.name) for row in rows], f.type) for f in SCHEMA]
    masks = [
        np.packbits([name not in row for name in SCHEMA.names], bitorder="little").tobytes()
        for row in rows
    ]
    arrays += [
        pa.array([row.get("op", INSERT) for row in rows], pa.int8()),
        pa.array(masks, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(arrays, names=[*SCHEMA.names, OP, ABSENT])


def _apply(model: dict[tuple[Any, ...], Row], row: Row, soft: str | None) -> None:
    which = tuple(row[name] for name in KEY)
    if row.get("op") != DELETE:
        carried = {name: value for name, value in row.items() if name != "op"}
        unmarked = {soft: None} if soft else {}
        model[which] = model.get(which, {}) | unmarked | carried
    elif soft is None:
        model.pop(which, None)
    elif which in model:
        model[which][soft] = NOW


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int32(), [1, -1, 2**31 - 1]),
        (pa.decimal128(20, 2), ["1.10", "1.11", "-1.10"]),
        (pa.binary(4), [b"abcd", b"abce", b"\0\0\0\0"]),
        (pa.timestamp("us", "UTC"), [0, 1, -1]),
        (pa.time64("us"), [0, 1, 2]),
        (pa.date32(), ["1970-01-01", "1970-01-02", "1969-12-31"]),
        (pa.bool_(), [True, False]),
        (pa.string(), ["", "a", "é"]),
    ],
)
def test_keys_are_equal_only_where_values_are(kind: pa.DataType, values: list[Any]) -> None:
    array = (
        pa.array(values).cast(kind) if isinstance(values[0], (int, str)) else pa.array(values, kind)
    )
    schema = pa.schema([("a", kind), ("b", pa.string())])
    rows = pa.RecordBatch.from_arrays([array, pa.array(["x"] * len(values))], schema=schema)
    for key in (("a",), ("a", "b")):
        found = key_bytes(rows, schema, key).to_pylist()
        assert len(set(found)) == len(values)
        assert None not in found


def test_lengths_keep_joined_keys_apart() -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.string())])
    rows = pa.RecordBatch.from_pylist(
        [{"a": "1:x", "b": "y"}, {"a": "1", "b": "x1:y"}, {"a": "", "b": "1:x1:y"}], schema
    )
    assert len(set(key_bytes(rows, schema, ("a", "b")).to_pylist())) == 3
