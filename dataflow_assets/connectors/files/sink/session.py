"""The driver's side of the sink: one epoch of one branch, and one commit for each micro-batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.files.client import FilesStored, Folder
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
    Span,
    Target,
    refuse_shared,
)
from dataflow_assets.failpoints import reach
from dataflow_assets.records.decoding import decode_json
from dataflow_assets.sdk.sink.session import StateChange, TransactionalSession
from dataflow_assets.sdk.sink.state import BranchState


class FilesSinkSession(TransactionalSession):
    """The state is a version of the log that only one driver can make."""

    _sink: FilesSinkOptions

    def __init__(self, sink: FilesSinkOptions, target: Target, run: Run) -> None:
        with translate_errors(sink, "open"):
            self._folder = Folder(sink)
            self._folder.check()
            self._identity = identify(sink)
            self._log = CommitLog(self._folder, target)
            super().__init__(sink, target, run)
            self._log.clear(self.checkpoint.epoch)

    @property
    @override
    def identity(self) -> str:
        return self._identity

    @override
    def schema(self) -> pa.Schema:
        return MESSAGES

    @override
    def create(self, sample: pa.Schema) -> None:
        """A folder is there with its first file."""

    @override
    def holds_rows(self) -> bool:
        with translate_errors(self._sink, "look into"):
            return bool(rows(self._folder))

    @override
    def read(self) -> BranchState | None:
        with translate_errors(self._sink, "read the checkpoint of"):
            newest = head(self._folder, self._target)
        return newest.state if newest else None

    @override
    def record(self, step: StateChange) -> BranchState:
        with translate_errors(self._sink, "commit to"):
            return self._log.commit(step)

    @override
    def fence(self, step: StateChange, *, empty: bool = False) -> BranchState:
        """Every version does: who finds another newest one than its own can make no more."""
        with translate_errors(self._sink, "commit to"):
            if empty:
                refuse_shared(self._target, self._sink.address(), self._others())
            return self._log.commit(step, removes=self._rows if empty else tuple)

    def _rows(self) -> tuple[FilesStored, ...]:
        return rows(self._folder)

    def _others(self) -> dict[str, str]:
        return {
            one.flow: f"delete the folder {LOGS}/{name_of(replace(self._target, flow=one.flow))}"
            for one in heads(self._folder)
            if one.flow != self._target.flow and one.state.checkpoint.target == self._identity
        }

    @override
    def publish(self, step: StateChange, receipts: Sequence[Receipt]) -> BranchState:
        reach("files.before-commit")
        with translate_errors(self._sink, "commit to"):
            state = self._log.commit(step, partial(self._name_files, receipts))
        reach("files.finished")
        return state

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

    @override
    def begin(self, span: Span) -> Span:
        begun = super().begin(span)
        reach("files.begin")
        return begun


def _final(staged: FilesStaged, stem: str) -> str:
    name = f"{stem}-{staged.name.rpartition('-')[2]}"
    return f"{BESIDE}/{name}" if staged.rejected else name


def peek(sink: FilesSinkOptions, target: Target) -> Checkpoint | None:
    """The stored checkpoint; None for a branch that never began, or was forgotten."""
    with translate_errors(sink, "read the checkpoint of"):
        newest = head(Folder(sink), target)
    return newest.state.for_readers if newest and newest.state.is_known else None
