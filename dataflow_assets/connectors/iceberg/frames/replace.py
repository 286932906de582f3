"""Files of a frame in the place of the rows of a table, or of some of its partitions: one commit.

A commit asserts the snapshot that its plan was made for. Who lost a race plans again: files that
another writer has added with rows of the same partitions are taken out as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table

from dataflow_assets.connectors.iceberg.connection import CatalogConnection
from dataflow_assets.connectors.iceberg.errors import translate_errors
from dataflow_assets.connectors.iceberg.frames.read import files_with
from dataflow_assets.connectors.iceberg.table.commit import CONFLICTS, Committer, TableChange
from dataflow_assets.errors import TransientError

KEY = "dataflow.frame"
"""The property by which commits name themselves; it is never set."""
Tasks = Sequence[FileScanTask]


class IcebergMoved(TransientError):
    """Other files have such rows by now."""


def append(sink: CatalogConnection, committer: Committer, files: Sequence[DataFile]) -> None:
    with translate_errors(sink, "commit to"):
        committer.commit(TableChange(KEY, lambda _: None, files=files))


@dataclass(frozen=True)
class Replacement:
    """Which rows of one table are replaced."""

    sink: CatalogConnection
    committer: Committer
    rows: BooleanExpression

    def run(self, made: Callable[[Tasks], list[DataFile]], files: Sequence[DataFile] = ()) -> None:
        """Takes the files out that have such rows, and puts others in.

        Args:
            made: new files in the place of those that are taken out; called for each plan.
            files: the same for any plan.

        Raises:
            TransientError: others were quicker again and again.
        """
        for _ in range(CONFLICTS):
            with translate_errors(self.sink, "plan a change of"):
                tasks = files_with(self.committer.table, self.rows)
            new = made(tasks)
            with translate_errors(self.sink, "commit to"):
                try:
                    self._commit(tasks, [*files, *new])
                except IcebergMoved:
                    self.committer.discard(new)
                    self.committer.reload()
                else:
                    return
        raise TransientError(
            f"cannot commit to {'.'.join(self.sink.identifier)}: others change the same rows again "
            "and again; run this asset one partition after the other"
        )

    def _commit(self, tasks: Tasks, files: Sequence[DataFile]) -> None:
        seen = _file_names(tasks)

        def check_unmoved(table: Table) -> None:
            if _file_names(files_with(table, self.rows)) != seen:
                raise IcebergMoved

        gone = frozenset(task.file.file_path for task in tasks)
        self.committer.commit(
            TableChange(KEY, lambda _: None, files=files, gone=gone, guard=check_unmoved)
        )


def mixed_files(tasks: Tasks) -> list[FileScanTask]:
    """Files of which the table's own partitions do not tell that all rows are replaced."""
    return [task for task in tasks if task.residual != AlwaysTrue()]


def _file_names(tasks: Tasks) -> set[tuple[str, ...]]:
    return {
        (task.file.file_path, *sorted(each.file_path for each in task.delete_files))
        for task in tasks
    }
