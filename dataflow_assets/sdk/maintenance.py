"""Keeping the tables of a sink small: what is stored beside the rows and needed no more goes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dataflow_assets.contracts import Positions, Sink
from dataflow_assets.errors import PermanentError

LEAST_DAYS = 1 / 24  # a driver that has lost an answer looks for its own commit for minutes
LEAST_ORPHAN_DAYS = 1.0  # files of a running task are listed by nothing yet


@dataclass(frozen=True)
class Keep:
    """What stays: this many snapshots, all of so many days, and unlisted files of so many.

    `unread_days`: for how long snapshots stay that a reader has not come to.
    """

    snapshots: int = 10
    days: float = 1.0
    orphan_days: float = 3.0
    unread_days: float = 14.0

    def __post_init__(self) -> None:
        if self.snapshots < 1 or self.days < LEAST_DAYS or self.orphan_days < LEAST_ORPHAN_DAYS:
            raise PermanentError(
                f"snapshots must be at least 1, days at least {LEAST_DAYS:.3f} (an hour) and "
                f"orphan_days at least {LEAST_ORPHAN_DAYS:g}: running flows need what is younger"
            )


@dataclass(frozen=True)
class Tidied:
    """What was removed from one table: snapshots, files and their bytes; `note` says what stays."""

    table: str
    snapshots: int = 0
    files: int = 0
    bytes: int = 0
    note: str = ""


class Maintained(Sink):
    """A sink whose tables need maintenance: a location with one gets the job `<type>_maintenance`.

    Flows run meanwhile and never have to wait: checkpoints are not touched, and what a running task
    may have written is not removed.
    """

    @abstractmethod
    def maintain(self, keep: Keep, readers: Sequence[Positions]) -> Iterable[Tidied]:
        """Removes what nobody needs from the sink's table and that of its rejected records.

        Called by the job on the driver, once for each table in each run of the job; several flows
        that write to one table count as one.

        Args:
            keep: what stays in any case.
            readers: the checkpoints of the branches of this location that read the table, made by
                the source of the same system: what they have still to read stays too.

        Returns:
            One entry for each table; none for a table that does not exist.

        Raises:
            TransientError: the system cannot be reached now.
            PermanentError: a person must act.
        """
