"""The `files` sink as a manifest declares it."""

from __future__ import annotations

from typing import ClassVar, Literal

from typing_extensions import override

from dataflow_assets.connectors.files.options import FilesSinkOptions
from dataflow_assets.contracts import (
    Checkpoint,
    Entries,
    ErrorStore,
    Run,
    SinkSession,
    Slice,
    Target,
    Ticket,
    Writer,
)
from dataflow_assets.sdk.sink.slice_commit import SliceWriter


class FilesSink(FilesSinkOptions):
    """Records as lines of JSON, in files of a folder of S3 or of the disk.

    A line is the body of a record, byte for byte where no step has changed it and it has no line
    breaks; its key and headers are not stored. Files get their names when they are committed:
    whoever reads the folder, and leaves out names that begin with `_` or `.` as Spark, Trino and
    DuckDB do, sees committed records only, each of them once.

    The checkpoint is in the folder too, below `_dataflow`. The S3 store must support conditional
    puts (`If-None-Match: *`), as AWS does; one that does not is refused when the flow starts. The
    driver signs them with `accessKey`, else with the credentials that AWS's own clients find.
    """

    type: ClassVar[str] = "files"
    commits: ClassVar[Literal["slice", "span"]] = "span"
    takes: ClassVar[Literal["columns", "messages"]] = "messages"
    guarantee: ClassVar[str] = (
        "Exactly once: rows and position are one commit, a file that only one driver can create. "
        "The files of a commit become visible one after the other behind it; after a crash in "
        "between, the missing ones when the flow runs next. What is visible was committed, and "
        "is there once."
    )

    @override
    def open(self, target: Target, run: Run) -> SinkSession:
        from dataflow_assets.connectors.files.sink.session import open_session

        return open_session(self, target, run)

    @override
    def peek(self, target: Target) -> Checkpoint | None:
        from dataflow_assets.connectors.files.sink.session import peek

        return peek(self, target)

    @override
    def writer(self, ticket: Ticket, piece: Slice) -> Writer:
        from dataflow_assets.connectors.files.sink.writer import FilesSliceStore

        return SliceWriter(ticket, piece, FilesSliceStore(self, ticket, piece))

    @override
    def error_store(self) -> ErrorStore:
        """Error records as lines of the folder's files: at least once, by id."""
        from dataflow_assets.connectors.files.rejected.error_sink import FilesErrors

        return FilesErrors(self, "")

    @override
    def rejected_entries(self) -> Entries:
        from dataflow_assets.connectors.files.rejected.error_sink import BESIDE, FilesErrors

        return FilesErrors(self, f"{BESIDE}/")
