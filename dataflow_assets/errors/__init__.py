"""The four errors of the engine, named for what the caller does next.

| class | what to do |
|---|---|
| `ManifestError` | fix the manifest; nothing was read or written |
| `TransientError` | wait and try again from the checkpoint |
| `PermanentError` | stop; a person must act; the message says what to do |
| `RejectedRecord` | set this one record aside and go on |
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb
from typing import TypeVar

from dataflow_assets.errors.defects import is_defect

_PACKAGE = Path(__file__).parent.parent

Answer = TypeVar("Answer")


class DataflowError(Exception):
    """Root of every error this engine raises on purpose."""

    branch: str | None = None
    """The branch it is about, where the others could go on without it."""
    suspended: tuple[str, ...] = ()
    """The branches that did not come back in a run in which the others went on."""


@dataclass(frozen=True, order=True)
class Finding:
    """One mistake in one manifest: where it is, what is wrong, what is allowed."""

    file: str
    line: int
    column: int
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.path}: {self.message}"


class ManifestError(DataflowError):
    """A manifest that cannot be used, with every finding at once."""

    def __init__(self, findings: list[Finding]) -> None:
        self.findings = sorted(findings)
        super().__init__("\n".join(str(finding) for finding in self.findings))


class TransientError(DataflowError):
    """Something outside failed for now: a broker, a database, a session."""


class Locked(TransientError):
    """Another transaction holds a lock for longer than a commit waits for it."""


class PermanentError(DataflowError):
    """Trying again will not help until somebody has changed something."""


class Outdated(PermanentError):
    """A recorded span cannot be finished; it is planned again, if it can be.

    What it reads is there no more as it was, or nobody knows what of it is stored.
    """


class NewColumns(PermanentError):
    """Rows of a table have columns that a target lacks."""

    def __init__(self, message: str, columns: bytes = b"", gone: tuple[str, ...] = ()) -> None:
        """Made inside tasks.

        Args:
            message: for people.
            columns: their schema, as Arrow serializes it.
            gone: the target's columns that the rows lack.
        """
        self.columns, self.gone = columns, gone
        super().__init__(message)


class Defect(PermanentError):
    """Our own code, or a library, cannot do something: it fails the same way each time."""


class TakenOver(PermanentError):
    """Another driver took the flow's epoch; this one must stop at once."""


class Lost(PermanentError):
    """A file that the flow has kept for itself is gone, or is not what was written.

    Where another run has taken the flow meanwhile, that one has cleaned up, and nothing is wrong.
    """


class CheckpointRemoved(PermanentError):
    """The branch has no checkpoint any more under which it may commit; other branches go on."""


class Stopped(PermanentError):
    """The flow stops at a record: nothing behind it in its partition, nor its part, is stored."""

    def __init__(self, message: str, partition: str = "", offset: int = 0) -> None:
        self.partition = partition
        self.offset = offset
        super().__init__(message)


class RejectedRecord(DataflowError):
    """This record cannot be stored; its neighbours can.

    `stage`: source, decode, step, encode or sink. `step` and `step_type` name the step that has
    refused it.
    """

    def __init__(
        self, stage: str, reason: str, step: int | None = None, step_type: str | None = None
    ) -> None:
        self.stage = stage
        self.reason = reason
        self.step = step
        self.step_type = step_type
        super().__init__(f"{stage}: {reason}")


@contextmanager
def blame(branch: str) -> Iterator[None]:
    """Errors inside are about this branch: the others may go on without it."""
    try:
        yield
    except DataflowError as error:
        error.branch = error.branch or branch
        raise


def outcome(ask: Callable[[], Answer]) -> Answer | DataflowError:
    """The answer, or the error in its place: where many are asked together, each has its own.

    So has one whose question meets an error that nobody translated: it takes no other one down. It
    is final only where it is a mistake of this program; a network, a disk or memory comes back.
    """
    try:
        return ask()
    except DataflowError as error:
        return error
    except Exception as error:  # noqa: BLE001 - becomes the answer, of this one alone
        mistake = is_defect(error)
        failure = (
            PermanentError(describe_unexpected(error))
            if mistake
            else TransientError(_outside(error))
        )
        failure.__cause__ = error
        return failure


def describe_unexpected(error: Exception) -> str:
    """Returns what to say of an error that nobody meant: its kind, and where it was thrown.

    Called where the error of one file or flow must not stop the others. Its own text is left out,
    as it may quote a value.
    """
    return f"unexpected {type(error).__name__}{_where(error)}, a mistake of dataflow-assets"


def _outside(error: Exception) -> str:
    number = error.errno if isinstance(error, OSError) else None
    words = f" ({os.strerror(number)})" if isinstance(number, int) else ""
    return f"unexpected {type(error).__name__}{words}{_where(error)}"


def _where(error: Exception) -> str:
    frames = [(Path(one.filename), one.lineno) for one in extract_tb(error.__traceback__)]
    own = [(path, line) for path, line in frames if path.is_relative_to(_PACKAGE)]
    return f" in {own[-1][0].relative_to(_PACKAGE)}:{own[-1][1]}" if own else ""


def raise_if_error(outcome: Answer | DataflowError) -> Answer:
    """Returns an answer, or raises the error in its place."""
    if isinstance(outcome, DataflowError):
        raise outcome
    return outcome
