"""More than 2 GiB of values in one table: Arrow joins no more of `binary` into one array."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataflow_assets.languages.sql.engine.changes import (
    KEPT,
    SCHEMA,
    changes,
    kept_rows,
    latest,
    looked_up,
)
from dataflow_assets.languages.sql.engine.merging import merge_rows
from dataflow_assets.languages.sql.state import tables
from dataflow_assets.languages.sql.state.manifest import StateFile
from dataflow_assets.languages.sql.state.tasks import load

FEW = changes([b"000001", b"001500"], [None, None], [1, 1])
STORED = pa.schema([("k", pa.binary()), ("v", pa.binary()), ("t", pa.int64())])
"""Of a file; versions before had these columns in memory too."""


class Stored:
    """One file of a table."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def read(self, name: str, digest: str) -> bytes:  # noqa: ARG002
        return self._content


def read(content: bytes) -> pa.Table:
    return load(cast("Any", Stored(content)), StateFile("one", 1, 1, ""))


def test_no_table_in_memory_has_a_column_that_cannot_be_joined() -> None:
    rows = tables.touch(kept_rows({b"b": b"2", b"a": b"1"}), 5)
    merged = merge_rows(rows.select(["k", "v"]), changes([b"a"], [b"3"], [1]), several=False)
    found = tables.merge([rows, tables.touch(merged.puts, 6)])
    columns = [*found.columns, *latest(FEW).columns, looked_up(found, FEW["k"])]
    kinds = {one.type for one in columns}
    assert kinds == {pa.large_binary(), pa.int64()}
    assert sorted(found["v"].to_pylist()) == [b"2", b"3"]


def test_files_are_as_versions_before_wrote_and_read_them(tmp_path: Path) -> None:
    rows = tables.touch(kept_rows({b"a": b"1", b"b": None}), 5)
    (tmp_path / "new").write_bytes(tables.encode(rows))
    assert pq.read_schema(tmp_path / "new").equals(STORED)
    pq.write_table(rows.cast(STORED), tmp_path / "old")
    assert read((tmp_path / "old").read_bytes()) == read(tables.encode(rows)) == rows


@pytest.mark.full
def test_few_keys_of_a_table_of_more_than_two_gigabytes_are_merged() -> None:
    """Columns of zeros: what is joined is copied once, 2.2 GB."""
    size, rows = 1_100_000_000, 1000
    ends = pa.py_buffer((np.arange(rows + 1) * (size // rows)).astype(np.int32))
    zeros = pa.py_buffer(np.zeros(size, np.uint8))
    chunk = pa.Array.from_buffers(pa.binary(), rows, [None, ends, zeros])
    keys = [pa.array([b"%06d" % (at + half) for at in range(rows)]) for half in (0, rows)]
    columns = [pa.chunked_array(keys), pa.chunked_array([chunk, chunk])]
    old = pa.table(columns, ["k", "v"]).cast(KEPT)
    found = merge_rows(old, FEW.cast(SCHEMA), several=False)
    assert found.puts.to_pylist() == [{"k": one, "v": None} for one in FEW["k"].to_pylist()]
    assert [len(one) for one in found.rows.rows] == [size // rows] * 2
