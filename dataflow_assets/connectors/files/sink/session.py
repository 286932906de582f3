"""The driver's side of the sink: the folder, and one commit of the log for each change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.files.client import Folder
from dataflow_assets.connectors.files.errors import translate_errors
from dataflow_assets.connectors.files.options import FilesSinkOptions
from dataflow_assets.connectors.files.rejected.error_sink import BESIDE
from dataflow_assets.connectors.files.sink.writer import FilesStaged
from dataflow_assets.connectors.files.table.commit_log import (
    LOGS,
    CommitLog,
    FilesMoved,
    head,
    heads,
    name_of,
    rows,
)
from dataflow_assets.connectors.files.table.identity import identify
from dataflow_assets.contracts import (
    MESSAGES,
    Checkpoint,
    Receipt,
    Run,
    Target,
    TargetTable,
)
from dataflow_assets.failpoints import reach
from dataflow_assets.records.decoding import decode_json
from dataflow_assets.sdk.sink.checkpoint_store import CheckpointStore, StateChange
from dataflow_assets.sdk.sink.session import TransactionalSession
from dataflow_assets.sdk.sink.state import BranchState


class FilesFolder(TargetTable):
    """A folder, which is there with its first file."""

    def __init__(self, sink: FilesSinkOptions, folder: Folder) -> None:
        self._sink, self._folder = sink, folder
        self._identity = identify(sink)

    @property
    @override
    def identity(self) -> str:
        return self._identity

    @override
    def schema(self) -> pa.Schema:
        return MESSAGES

    @override
    def create(self, sample: pa.Schema) -> None:
        """Nothing is to be made."""

    @override
    def holds_rows(self) -> bool:
        with translate_errors(self._sink, "look into"):
            return bool(rows(self._folder))


class FilesCheckpoints(CheckpointStore):
    """The state is a version of the log that only one driver can make."""

    system: ClassVar = "files"

    def __init__(
        self, sink: FilesSinkOptions, target: Target, folder: Folder, identity: str
    ) -> None:
        self._sink, self._target, self._folder, self._identity = sink, target, folder, identity
        self.log = CommitLog(folder, target)

    @override
    def load(self, receipts: Sequence[Receipt] = ()) -> BranchState | None:
        with translate_errors(self._sink, "read the checkpoint of"):
            newest = head(self._folder, self._target)
        return newest.state if newest else None

    @override
    def change(self, step: StateChange) -> BranchState:
        with translate_errors(self._sink, "commit to"):
            return self.log.commit(step)

    @override
    def fence(self, step: StateChange, *, empty: bool = False) -> BranchState:
        """Every version does: who finds another newest one than its own can make no more."""
        with translate_errors(self._sink, "commit to"):
            removes = partial(rows, self._folder) if empty else tuple
            return self.log.commit(step, removes=removes)

    @override
    def sharing(self) -> Mapping[str, str]:
        with translate_errors(self._sink, "look into"):
            return {
                one.flow: "delete the folder "
                f"{LOGS}/{name_of(replace(self._target, flow=one.flow))}"
                for one in heads(self._folder)
                if one.flow != self._target.flow and one.state.checkpoint.target == self._identity
            }

    @override
    def publish(self, step: StateChange, receipts: Sequence[Receipt]) -> BranchState:
        reach("files.before-commit")
        with translate_errors(self._sink, "commit to"):
            return self.log.commit(step, partial(self._name_files, receipts))

    def _name_files(self, receipts: Sequence[Receipt], version: int) -> tuple[FilesMoved, ...]:
        """The staged files with the names that readers will find them by.

        In the order of the commits; with the staged name, since a log that was removed begins at
        version 1 again.
        """
        staged = [decode_json(text, FilesStaged) for one in receipts for text in one.staged]
        stem = f"{name_of(self._target)}-{self._identity[:8]}-{version:09d}"
        return tuple(
            FilesMoved(one.name, _final(one, f"{stem}-{number:04d}"))
            for number, one in enumerate(staged)
        )


def open_session(sink: FilesSinkOptions, target: Target, run: Run) -> TransactionalSession:
    """Takes the epoch, and clears away what tasks of earlier ones have left."""
    with translate_errors(sink, "open"):
        folder = Folder(sink)
        folder.check()
        table = FilesFolder(sink, folder)
    store = FilesCheckpoints(sink, target, folder, table.identity)
    session = TransactionalSession(sink, target, run, table, store)
    with translate_errors(sink, "open"):
        store.log.clear(session.checkpoint.epoch)
    return session


def _final(staged: FilesStaged, stem: str) -> str:
    name = f"{stem}-{staged.name.rpartition('-')[2]}"
    return f"{BESIDE}/{name}" if staged.rejected else name


def peek(sink: FilesSinkOptions, target: Target) -> Checkpoint | None:
    """The stored checkpoint; None for a branch that never began, or was forgotten."""
    with translate_errors(sink, "read the checkpoint of"):
        newest = head(Folder(sink), target)
    return newest.state.for_readers if newest and newest.state.is_known else None
