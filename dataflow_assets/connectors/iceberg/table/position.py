"""The position of a reader of snapshots: behind a snapshot, or at a row inside one.

As text it is JSON for people too. Snapshot ids are digits in a string: they have 63 bits, and a
browser's numbers only 53.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

import msgspec
from pyiceberg.table.snapshots import Snapshot

from dataflow_assets.errors import PermanentError
from dataflow_assets.records.decoding import decode_json

Scan = Literal["added", "full"]


class _Text(msgspec.Struct, omit_defaults=True):
    snapshot: str | None = None
    sequence: int = 0
    at: str = ""
    scan: Scan | None = None
    file: int = 0
    row: int = 0
    done: int = 0


@dataclass(frozen=True)
class SnapshotPosition:
    """`snapshot` and all before it are read; with `scan`, of `snapshot` only what lies before.

    None for `snapshot`: nothing is read, and the current snapshot comes first, in full. `sequence`
    and `at` (when it was committed, RFC 3339) are told again where the snapshot has expired.
    `scan` says which files of the snapshot are read, `file` and `row` where the next row is in
    their order, `done` how many rows lie before it.
    """

    snapshot: int | None = None
    sequence: int = 0
    at: str = ""
    scan: Scan | None = None
    file: int = 0
    row: int = 0
    done: int = 0

    @classmethod
    def after(cls, snapshot: Snapshot) -> SnapshotPosition:
        return cls(snapshot.snapshot_id, snapshot.sequence_number or 0, commit_time(snapshot))

    @classmethod
    def inside(cls, snapshot: Snapshot, scan: Scan) -> SnapshotPosition:
        return replace(cls.after(snapshot), scan=scan)

    @classmethod
    def parse(cls, text: object) -> SnapshotPosition:
        """Returns what `text` wrote. Raises PermanentError for anything else."""
        try:
            decoded = decode_json(str(text), _Text)
        except msgspec.MsgspecError:
            raise PermanentError(
                f"{text} is not a position in an Iceberg table; the one behind a snapshot is "
                '{"snapshot":"<its id>"}'
            ) from None
        fields = msgspec.structs.asdict(decoded)
        return cls(**fields | {"snapshot": int(decoded.snapshot) if decoded.snapshot else None})

    def text(self) -> str:
        snapshot = None if self.snapshot is None else str(self.snapshot)
        fields = _Text(snapshot, self.sequence, self.at, self.scan, self.file, self.row, self.done)
        return msgspec.json.encode(fields).decode()

    @property
    def order(self) -> tuple[int, str]:
        """Ascending along a table's history; tables of format 1 have no sequence numbers."""
        return self.sequence, self.at

    @property
    def place(self) -> tuple[int, int, int]:
        """Ascending within one snapshot: among all its files, among those it added, behind it."""
        ways = {"full": 0, "added": 1, None: 2}
        return ways[self.scan], self.file, self.row

    def same_scan(self, other: SnapshotPosition) -> bool:
        """Returns whether the places of both are in the same files of the same snapshot."""
        return (self.snapshot, self.scan) == (other.snapshot, other.scan)

    def __str__(self) -> str:
        if self.snapshot is None:
            return "the beginning"
        return f"snapshot {self.snapshot} (sequence number {self.sequence}, committed {self.at})"


BEGINNING = SnapshotPosition()


def commit_time(snapshot: Snapshot) -> str:
    """When the snapshot was committed, as RFC 3339 in milliseconds."""
    at = datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
