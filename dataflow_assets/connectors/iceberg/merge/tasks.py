"""A merge's work inside tasks: read keys, and rewrite files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata

from dataflow_assets.connectors.iceberg.merge.match import (
    IcebergRules,
    fold,
    key_bytes,
    merge_rows,
    new_rows,
)
from dataflow_assets.connectors.iceberg.merge.stage import AT
from dataflow_assets.connectors.iceberg.table.data_files import WriteTarget
from dataflow_assets.connectors.iceberg.table.file_writer import FileWriter, file_writer
from dataflow_assets.connectors.iceberg.table.stored_rows import live_rows
from dataflow_assets.connectors.iceberg.types import file_schema
from dataflow_assets.errors import PermanentError
from dataflow_assets.failpoints import Failpoint, arm, reach
from dataflow_assets.formats.structs import cast_rows

KEYS = "k binary, file int"
STAGED = "k binary, source int, row int, at long"
RESULT = "result"
_KEYS = pa.schema([("k", pa.binary()), ("file", pa.int32())])
_STAGED = pa.schema(
    [
        ("k", pa.binary()),
        ("source", pa.int32()),
        ("row", pa.int32()),
        ("at", pa.int64()),
    ]
)
_RESULT = pa.schema([(RESULT, pa.binary())])


@dataclass(frozen=True)
class Rewritten:
    """Results of one task: documents of the files it wrote, paths of those they replace."""

    files: tuple[str, ...]
    gone: tuple[str, ...]


@dataclass(frozen=True)
class StoredKeys:
    """The keys of stored rows with the number of their file; some may come several times.

    `few`: staged files whose keys alone matter, where a task can hold them.
    """

    metadata: TableMetadata = field(repr=False)
    target: WriteTarget
    groups: tuple[tuple[tuple[int, FileScanTask], ...], ...] = field(repr=False)
    key: tuple[str, ...]
    few: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches of `KEYS`; takes numbers of groups."""
        staged_keys = None
        for batch in batches:
            for index in batch.column("id").to_pylist():
                if self.few and staged_keys is None:
                    schema = file_schema(self.target.iceberg_schema, self.key)
                    staged = [_read_staged(self.target, path, self.key) for path in self.few]
                    keys = [key_bytes(rows, schema, self.key) for rows in staged]
                    staged_keys = pc.unique(pa.concat_arrays(keys))
                for number, task in self.groups[index]:
                    yield from self._of(number, task, staged_keys)

    def _of(
        self, number: int, task: FileScanTask, wanted: pa.Array | None
    ) -> Iterator[pa.RecordBatch]:
        schema = file_schema(self.target.iceberg_schema, self.key)
        for rows in _scan(self.metadata, self.target, task, self.key):
            keys = pc.unique(key_bytes(rows, schema, self.key))
            if wanted is not None:
                keys = keys.filter(pc.is_in(keys, value_set=wanted))
            yield pa.record_batch([keys, pa.array([number] * len(keys), pa.int32())], _KEYS)


@dataclass(frozen=True)
class StagedKeys:
    """The keys of staged rows with their places."""

    target: WriteTarget
    paths: tuple[str, ...]
    key: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches of `STAGED`; takes numbers of staged files."""
        for batch in batches:
            for source in batch.column("id").to_pylist():
                yield self._of(source)

    def _of(self, source: int) -> pa.RecordBatch:
        rows = _read_staged(self.target, self.paths[source], [*self.key, AT])
        schema = file_schema(self.target.iceberg_schema, self.key)
        keys, count = key_bytes(rows, schema, self.key), rows.num_rows
        arrays = [
            keys,
            pa.array(np.full(count, source, np.int32)),
            pa.array(np.arange(count, dtype=np.int32)),
            rows.column(AT),
        ]
        return pa.record_batch(arrays, _STAGED)


@dataclass(frozen=True)
class BucketRewriter:
    """Takes (bucket, source, row) in order: rewrites file after file, and writes the inserts."""

    metadata: TableMetadata = field(repr=False)
    target: WriteTarget
    tasks: tuple[FileScanTask, ...] = field(repr=False)
    paths: tuple[str, ...]
    rules: IcebergRules
    target_bytes: int
    failpoint: Failpoint | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        arm(self.failpoint)
        names = [column.name for column in self.target.iceberg_schema.fields]
        files = file_writer(self.target, "merged", names, self.target_bytes)
        gone: list[str] = []
        try:
            for bucket, places in _by_bucket(batches):
                self._bucket(bucket, places, files, gone)
            done = Rewritten(files.close(), tuple(gone))
            reach("iceberg.rewritten")
        except BaseException:
            files.abort()
            raise
        yield pa.record_batch([[msgspec.msgpack.encode(done)]], _RESULT)

    def _bucket(self, bucket: int, places: pa.Table, files: FileWriter, gone: list[str]) -> None:
        schema = files.schema
        folded = fold(self._rows(places), schema, self.rules)
        if bucket < 0:
            files.write(new_rows(folded, schema))
            return
        task = self.tasks[bucket]
        for rows in _scan(self.metadata, self.target, task, schema.names):
            files.write(merge_rows(cast_rows(rows, schema), folded, self.rules))
        gone.append(task.file.file_path)

    def _rows(self, places: pa.Table) -> pa.RecordBatch:
        tables = [
            _read_staged(self.target, self.paths[source]).take(mine.column("row").combine_chunks())
            for source, mine in _runs(places, "source")
        ]
        return one_batch(pa.Table.from_batches(tables))


def _by_bucket(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
    """The rows of one bucket after the other; they come sorted, in batches of any length."""
    held: list[pa.Table] = []
    last = 0
    for batch in batches:
        for bucket, rows in _runs(pa.Table.from_batches([batch]), "bucket"):
            if held and bucket != last:
                yield last, pa.concat_tables(held)
                held = []
            held, last = [*held, rows], bucket
    if held:
        yield last, pa.concat_tables(held)


def _runs(rows: pa.Table, name: str) -> Iterator[tuple[int, pa.Table]]:
    """The rows split where the column changes."""
    values = rows.column(name).to_numpy()
    cuts = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)]
    for start, end in pairwise(cuts):
        if end > start:
            yield int(values[start]), rows.slice(start, end - start)


def _scan(
    metadata: TableMetadata, target: WriteTarget, task: FileScanTask, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of a file that are not deleted, with these columns."""
    yield from live_rows(metadata, target.file_io(), task, names)


def _read_staged(
    target: WriteTarget, path: str, names: Sequence[str] | None = None
) -> pa.RecordBatch:
    with target.file_io().new_input(path).open() as stream:
        table = pq.read_table(stream, columns=names and list(names))
    return one_batch(table)


def one_batch(rows: pa.Table) -> pa.RecordBatch:
    """Raises PermanentError where they are several: Arrow joins no more than 2 GiB of text."""
    first, *more = rows.combine_chunks().to_batches()
    if more:
        raise PermanentError(
            "the changed rows of one data file have more than 2 GiB in a column: set "
            "maxBytesPerBatch lower, so that a micro-batch has fewer of them"
        )
    return first
