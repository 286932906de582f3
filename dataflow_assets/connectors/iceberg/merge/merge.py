"""Staged rows merged into the table on Spark: the files with rows of their keys are written again.

Tasks read the key columns of the files that may hold them, Spark joins these with the staged keys,
and each file that holds one is rewritten by one task; rows without a match go to new files. Nothing
comes to the driver but what describes the files, nothing is visible before the driver's commit, and
Spark needs neither a catalog nor a secret in its configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table

from dataflow_assets.connectors.iceberg.merge.match import IcebergRules
from dataflow_assets.connectors.iceberg.merge.stage import IcebergStaged
from dataflow_assets.connectors.iceberg.merge.tasks import (
    KEYS,
    RESULT,
    STAGED,
    BucketRewriter,
    Rewritten,
    StagedKeys,
    StoredKeys,
)
from dataflow_assets.connectors.iceberg.options import TableSinkOptions
from dataflow_assets.connectors.iceberg.table.data_files import data_file, write_target
from dataflow_assets.connectors.iceberg.table.snapshot import head
from dataflow_assets.contracts import utc_now
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.failpoints import from_environment, reach
from dataflow_assets.records.decoding import decode_msgpack
from dataflow_assets.sdk.causes import no_room
from dataflow_assets.spark.errors import sentence, task_failure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


Result = TypeVar("Result")

PART_BYTES = 64 * 1024 * 1024  # of stored or staged data for one task
MOST_PARTS = 64
FEW = 500_000  # staged rows up to which a task holds all of their keys


class HeadMoved(TransientError):
    """Another writer has changed rows of these keys since they were merged."""


@dataclass(frozen=True)
class IcebergMerged:
    """Files that one merge has written, and the paths of those that it replaces."""

    files: tuple[DataFile, ...] = ()
    gone: frozenset[str] = frozenset()


class IcebergMerge:
    """One merge of one span into the table as of one head."""

    def __init__(
        self,
        sink: TableSinkOptions,
        table: Table,
        staged: IcebergStaged,
        spark: Callable[[], SparkSession],
    ) -> None:
        self._table, self._staged, self._new_session = table, staged, spark
        self._sink = sink
        if not staged.fits(table.schema()):
            raise TransientError(
                f"the columns of table {'.'.join(table.name())} were changed while rows were read"
            )
        self._rules = IcebergRules(sink.key, sink.soft, utc_now())
        self._checked = {head(table)}
        self._tasks = self._candidates(table)
        self.made = IcebergMerged()

    def again(self, table: Table) -> IcebergMerge:
        """This merge of the same span, into the newest state of the table."""
        merge = IcebergMerge(self._sink, table, self._staged, self._new_session)
        merge.run()
        return merge

    def drop(self) -> None:
        """Deletes the staged rows, once what was made of them is committed."""
        self._staged.drop(self._table.io)

    def run(self) -> None:
        """Writes the files. Raises TransientError when Spark fails."""
        reach("iceberg.merging")
        rewriter = BucketRewriter(
            self._table.metadata,
            write_target(self._table),
            tuple(self._tasks),
            self._staged.paths,
            self._rules,
            self._sink.target_file_size_bytes,
            from_environment(),
        )
        frame = self._places().mapInArrow(rewriter, "result binary")
        table = _run(frame.toArrow)
        outputs = table.column(RESULT).to_pylist()
        results = [decode_msgpack(output, Rewritten) for output in outputs]
        files = [data_file(text, self._table) for one in results for text in one.files]
        self.made = IcebergMerged(
            tuple(files), frozenset(path for one in results for path in one.gone)
        )

    def _places(self) -> DataFrame:
        """The place of each staged row, by the file that holds its key or else a bucket below 0."""
        inserts = min(MOST_PARTS, self._staged.bytes // PART_BYTES + 1)
        bucket = f"coalesce(file, -1 - pmod(hash(k), {inserts})) as bucket"
        stored = self._stored_keys(self._table, self._tasks)
        joined = self._staged_keys().join(stored, "k", "left")
        placed = joined.selectExpr(bucket, "source", "row", "at")
        total = self._staged.bytes + sum(task.file.file_size_in_bytes for task in self._tasks)
        count = min(MOST_PARTS, inserts + len(self._tasks))
        # One task for little data: a shuffle costs more than it.
        near = placed.coalesce(1) if total < PART_BYTES else placed.repartition(count, "bucket")
        return near.sortWithinPartitions("bucket", "source", "at")

    def guard(self, table: Table) -> None:
        """Raises HeadMoved where another head has other rows of these keys than were merged.

        The files that were rewritten must stand there as they were, and no new file may hold a row
        of one of the keys.
        """
        if head(table) in self._checked:
            return
        before = {_state(task) for task in self._tasks}
        tasks = self._candidates(table)
        now = {_state(task) for task in tasks}
        rewritten = {state for state in before if state[0] in self.made.gone}
        new = [task for task in tasks if _state(task) not in before]
        if not rewritten <= now or (new and self._hold_keys(table, new)):
            raise HeadMoved(
                f"rows of table {'.'.join(table.name())} were changed by another writer"
            )
        self._checked.add(head(table))

    def _hold_keys(self, table: Table, tasks: Sequence[FileScanTask]) -> bool:
        stored = self._stored_keys(table, tasks)
        matching = self._staged_keys().join(stored, "k", "left_semi").limit(1)
        return bool(_run(matching.count))

    def _candidates(self, table: Table) -> list[FileScanTask]:
        scan = table.scan(row_filter=self._staged.filter(table.schema(), self._rules.key))
        try:
            return list(scan.plan_files())
        except ValueError as error:
            raise PermanentError(
                f"table {'.'.join(table.name())} cannot be merged into: {error}; let the engine "
                "that has written them rewrite its data files"
            ) from error

    def _stored_keys(self, table: Table, tasks: Sequence[FileScanTask]) -> DataFrame:
        few = self._staged.rows <= FEW
        groups = tuple(_groups(tasks)) or ((),)
        paths = self._staged.paths if few else ()
        reader = StoredKeys(table.metadata, write_target(table), groups, self._rules.key, paths)
        frame = self._spark.range(0, len(groups), 1, len(groups))
        keys = frame.mapInArrow(reader, KEYS)
        return keys.hint("broadcast") if few else keys

    def _staged_keys(self) -> DataFrame:
        paths = self._staged.paths
        reader = StagedKeys(write_target(self._table), paths, self._rules.key)
        return self._spark.range(0, len(paths), 1, len(paths)).mapInArrow(reader, STAGED)

    @property
    def _spark(self) -> SparkSession:
        return self._new_session()


def _state(task: FileScanTask) -> tuple[str, frozenset[str]]:
    return task.file.file_path, frozenset(file.file_path for file in task.delete_files)


def _groups(tasks: Sequence[FileScanTask]) -> list[tuple[tuple[int, FileScanTask], ...]]:
    """Files with their numbers, for one Spark task each: some megabytes, and not too many tasks."""
    total = sum(task.file.file_size_in_bytes for task in tasks)
    most = max(PART_BYTES, total // MOST_PARTS + 1)
    groups: list[list[tuple[int, FileScanTask]]] = []
    size = most
    for number, task in enumerate(tasks):
        if size >= most:
            groups.append([])
            size = 0
        groups[-1].append((number, task))
        size += task.file.file_size_in_bytes
    return [tuple(group) for group in groups]


def _run(job: Callable[[], Result]) -> Result:
    """Runs a Spark job; what fails there may succeed after a new attempt, unless a task says no."""
    from grpc import RpcError
    from pyspark.errors import PySparkException

    try:
        return job()
    except (PySparkException, RpcError, OSError) as error:
        if isinstance(final := task_failure(error), PermanentError):
            raise final from error
        reason = sentence(error)
        text = f"the Spark job that merges failed: {reason}{no_room(reason)}"
        raise TransientError(text) from error
