"""Where a branch stands, and who drives."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from dataflow_assets.contracts.slices import PartSlice, Positions


@dataclass(frozen=True)
class Totals:
    """Running totals since the flow began; reports are differences, so retries cannot lie."""

    rows: int = 0
    rejected: int = 0
    bytes: int = 0

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.rows + other.rows, self.rejected + other.rejected, self.bytes + other.bytes
        )

    def __sub__(self, other: Totals) -> Totals:
        return Totals(
            self.rows - other.rows, self.rejected - other.rejected, self.bytes - other.bytes
        )


@dataclass(frozen=True)
class Checkpoint:
    """What the sink has stored for one branch, in the same commit as its rows.

    `source` and `target` are identities (topic id, table oid or uuid): a recreated topic or table
    is another one. `positions` is empty until `begin` has stored the start.
    `reading` is another one after each restart: what was rejected and replayed before it may be
    rejected again. `run` is who has the epoch: the id of a run, or all that `Run` prints.
    `unfinished` are all parts of a bounded read that has begun, until the last one is committed.
    """

    epoch: int
    positions: Positions = field(default_factory=dict)
    totals: Totals = Totals()
    source: str | None = None
    target: str | None = None
    manifest: str = ""
    run: str = ""
    committed_at: datetime | None = None
    reading: int = 0
    unfinished: tuple[PartSlice, ...] = ()

    @property
    def run_id(self) -> str:
        """The id of the run that has the epoch; empty where nobody ever had it."""
        return self.run.removeprefix("run ").split(" ")[0]


def next_reading(last: int) -> int:
    """Another number for each restart; later ones are higher, also once a checkpoint is lost.

    Called by `SinkSession.restart`, on the driver.

    Args:
        last: the number in the checkpoint; 0 where there is none.

    Returns:
        The number to store: the time in seconds, or one more than the last.
    """
    return max(last + 1, int(time.time()))


@dataclass(frozen=True)
class Lag:
    """How far the checkpoint is behind: records, seconds since the oldest unread one, the ends.

    `seconds`: of the oldest one that could be looked at; None where that was none of them.
    Of a source that reads a server's log, `bytes` are those between checkpoint and end, and `held`
    those that the server keeps because the flow has not read them, or has not said so.
    `partitions`: the seconds of each partition of a topic, without those that nobody could look at.
    """

    records: int
    seconds: float | None
    ends: Positions
    bytes: int | None = None
    held: int | None = None
    partitions: Mapping[str, float] = field(default_factory=dict)
    state: int | None = None
    """Bytes of what the source keeps for the flow, where it keeps something and knows how much."""
    late: int | None = None
    """Rows that were dropped since their windows had ended, where the source has windows."""
    watermark: int | None = None
    """Up to when its windows have ended, in milliseconds since 1970, where it has windows."""
    connector: Mapping[str, str] = field(default_factory=dict)
    """States of the connector that the source runs, and of its tasks, by their names."""


def oldest(ages: Collection[float | None]) -> float | None:
    """Returns the greatest of several `Lag.seconds`.

    Called by whoever sums up partitions, sources or branches. None, which stands for an age that
    nobody knows, counts unless an age above 0 is known.
    """
    known = max((age for age in ages if age is not None), default=0.0)
    return None if not known and None in ages else known


@dataclass(frozen=True)
class Run:
    """Who drives: named in checkpoints, database sessions and takeover errors."""

    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)

    def __str__(self) -> str:
        return f"run {self.id} on host {self.place}"

    @property
    def place(self) -> str:
        """Its host and its process, as checkpoints name them."""
        return f"{self.host} (pid {self.pid})"


def utc_now() -> datetime:
    """The time to store and to compare.

    Called on the driver and inside tasks, whenever something is committed.

    Returns:
        Now, in UTC.
    """
    return datetime.now(UTC)


def local_now() -> datetime:
    """The time that the steps of a micro-batch take for now, and that people are shown.

    Called on the driver, once for each micro-batch.

    Returns:
        Now, in the zone of this machine.
    """
    return datetime.now().astimezone()
