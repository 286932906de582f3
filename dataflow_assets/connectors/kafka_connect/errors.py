"""Meanings of the end of a connector's process, and of faults of a spool."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from typing_extensions import override

from dataflow_assets.errors import DataflowError, PermanentError, TransientError
from dataflow_assets.sdk.server_failure import ServerFailure


class HostFailure(ServerFailure):
    """The process of a connector has ended. `lasting`: trying again is useless."""

    def __init__(self, message: str, *, lasting: bool = False) -> None:
        self.lasting = lasting
        super().__init__(message)

    @override
    def error(self, what: str) -> DataflowError:
        kind = PermanentError if self.lasting else TransientError
        return kind(f"{what}: {self}")


@contextmanager
def disk(folder: str) -> Iterator[None]:
    """For the driver, around what it reads and writes in a spool: TransientError for the disk's."""
    try:
        yield
    except OSError as error:
        raise TransientError(
            f"the spool {folder} cannot be read or written ({error.strerror or error}): check the "
            "disk's space and rights; nothing is lost, the run goes on behind what is stored"
        ) from None


def other_spool(folder: str) -> str:
    """Returns what is wrong where a flow has read another spool so far."""
    return (
        f"the spool {folder} is not the one that the flow has read so far: records that the "
        "connector knows to be delivered may be gone with it. Put the folder back; or remove "
        "it, and start from earliest with table: truncate"
    )


def older_spool(folder: str, last: int, position: int) -> str:
    """Returns what is wrong where a flow has read parts that the spool never had."""
    return (
        f"the spool {folder} ends with part {last}, and the flow has read part {position}: the "
        "folder is an older copy, behind which the connector would deliver records once more and "
        "lose others. Put the newer folder back; or remove it, and start from earliest with "
        "table: truncate"
    )


def another_part(folder: str, number: int) -> str:
    """Returns what is wrong where a part is not the one that a branch of the flow has read."""
    return (
        f"part {number} of the spool {folder} is not the one that the flow has read: an older copy "
        "of the folder was written to, and records are lost or come once more. Put the newer "
        "folder back; or remove it, and start from earliest with table: truncate"
    )


def without_state(folder: str) -> str:
    """A message for a spool whose parts have come from an unknown connector."""
    return (
        f"the spool {folder} has parts and no state.json: records that the connector knows to be "
        "delivered may be in them. Put the whole folder back; or remove it, so that the connector "
        "begins, too"
    )
