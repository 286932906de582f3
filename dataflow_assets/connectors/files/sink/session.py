"""The driver's side of the sink: one epoch of one branch, and one commit for each micro-batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.files.client import Folder, visible
from dataflow_assets.connectors.files.errors import translated
from dataflow_assets.connectors.files.options import FilesSinkOptions
from dataflow_assets.connectors.files.rejected.error_sink import BESIDE
from dataflow_assets.connectors.files.sink.writer import Staged
from dataflow_assets.connectors.files.table.commit_log import (
    LOGS,
    STAGED,
    CommitLog,
    Moved,
    head,
    heads,
    name_of,
)
from dataflow_assets.connectors.files.table.identity import identify
from dataflow_assets.contracts import (
    MESSAGES,
    Checkpoint,
    Cut,
    PartSlice,
    Positions,
    Receipt,
    Run,
    SinkSession,
    SourceSession,
    Span,
    Target,
    Ticket,
    Totals,
    refuse_shared,
    utc_now,
)
from dataflow_assets.errors import TransientError
from dataflow_assets.failpoints import from_environment, reach
from dataflow_assets.sdk.checkpoint import BranchState, advanced, check_planned


class FilesSession(SinkSession):
    """Opening it takes the epoch: a version of the log that only one driver can make."""

    def __init__(self, sink: FilesSinkOptions, target: Target, run: Run) -> None:
        self._sink, self._target, self._run = sink, target, run
        with translated(sink, "open"):
            self._folder = Folder(sink)
            self._folder.check()
            self._identity = identify(self._folder, sink.path)
            self._log = CommitLog(self._folder, target)
            self._log.take(run)
            self._clear_staged()

    def _clear_staged(self) -> None:
        """What tasks of earlier epochs have left; the files of commits are published by now."""
        for one in self._folder.files(f"{STAGED}/{name_of(self._target)}"):
            self._folder.delete(one.name)

    @property
    def _state(self) -> BranchState:
        return self._log.newest.state

    @property
    @override
    def checkpoint(self) -> Checkpoint:
        return self._state.checkpoint

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
        with translated(self._sink, "look into"):
            return any(visible(self._folder.files()))

    @override
    def adopt(self) -> None:
        state = self._state
        adopted = replace(state, checkpoint=replace(state.checkpoint, target=self._identity))
        with translated(self._sink, "commit to"):
            self._log.append(adopted)

    @override
    def restart(self, positions: Positions, source: str, *, empty: bool = False) -> None:
        with translated(self._sink, "commit to"):
            if empty:
                refuse_shared(self._target, self._sink.address(), self._others())
            restarted = self._state.restarted(positions, source, self._target, self._identity)
            self._log.append(restarted, empties=empty)

    def _others(self) -> dict[str, str]:
        """By the other flows into this folder: what removes a checkpoint."""
        return {
            one.flow: f"delete the folder {LOGS}/{name_of(replace(self._target, flow=one.flow))}"
            for one in heads(self._folder)
            if one.flow != self._target.flow and one.state.checkpoint.target == self._identity
        }

    @override
    def begin(self, span: Span) -> Span:
        with translated(self._sink, "commit to"):
            self._log.look()
            if unfinished := self._state.unfinished:
                return unfinished
            begun = self._state.begun(span, self._target, self._identity)
            if begun != self._state:
                self._log.append(begun)
        reach("files.begin")
        return span

    @override
    def divide(self, span: Span, cut: Cut) -> Span:
        divided = self._state.divided(cut)
        if divided == self._state:
            return span
        with translated(self._sink, "commit to"):
            self._log.append(divided)
        return divided.unfinished or span

    @override
    def ticket(self) -> Ticket:
        target = replace(self._target, reading=self.checkpoint.reading)
        return Ticket(target, self._run, self.checkpoint.epoch, MESSAGES, from_environment())

    @override
    def finish(self, span: Span, receipts: Sequence[Receipt], source: SourceSession) -> Checkpoint:
        left = self._state.left(span)
        if left:
            for piece in left:
                check_planned(self._target.flow, piece, self._positions.get(piece.partition))
            wanted = {piece.partition for piece in left}
            own = [one for one in receipts if one.partition in wanted]
            self._check_read(span, own)
            counted = sum((one.totals for one in own), Totals())
            positions = source.fold(advanced(self._positions, left))
            finished = self._state.finished(positions, counted)
            stamped = replace(finished.checkpoint, committed_at=utc_now())
            reach("files.before-commit")
            with translated(self._sink, "commit to"):
                self._log.append(replace(finished, checkpoint=stamped), self._named(own))
            reach("files.finished")
        return self.checkpoint

    @property
    def _positions(self) -> Positions:
        return self._state.positions

    @staticmethod
    def _check_read(span: Span, receipts: Sequence[Receipt]) -> None:
        reached = {(one.partition, one.position) for one in receipts}
        for piece in span.slices:
            whole = isinstance(piece, PartSlice) and not piece.empty
            if whole and (piece.partition, piece.upto) not in reached:
                raise TransientError(f"part {piece.partition} was not read to its end")

    def _named(self, receipts: Sequence[Receipt]) -> tuple[Moved, ...]:
        """The staged files with the names that readers will find them by."""
        staged = [
            msgspec.json.decode(text, type=Staged)
            for one in sorted(receipts, key=lambda one: one.partition)
            for text in one.staged
        ]
        stem = f"{name_of(self._target)}-{self._identity[:8]}-{self._log.newest.version + 1:09d}"
        return tuple(
            Moved(one.name, _final(one, f"{stem}-{number:04d}"))
            for number, one in enumerate(staged)
        )

    @override
    def forget(self) -> None:
        """Another version that knows nothing: a driver that still runs finds itself taken over."""
        with translated(self._sink, "remove the checkpoint of"):
            self._log.append(self._state.forgotten())

    @override
    def close(self) -> None:
        """Nothing is held open but pooled connections."""


def _final(staged: Staged, stem: str) -> str:
    suffix = staged.name.rpartition("/")[2].partition(".")[2]
    return f"{BESIDE}/{stem}.{suffix}" if staged.rejected else f"{stem}.{suffix}"


def peek(sink: FilesSinkOptions, target: Target) -> Checkpoint | None:
    """The stored checkpoint; None for a branch that never began, or was forgotten."""
    with translated(sink, "read the checkpoint of"):
        newest = head(Folder(sink), target)
    return newest.state.checkpoint if newest and newest.state.known else None
