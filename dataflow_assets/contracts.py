"""What a source, a sink and a writer promise each other: signatures and promises, nothing else.

The life of one micro-batch (DESIGN.md section 2): the driver plans a span with fixed upper bounds,
opens the sink's epoch, runs ONE pass over the span on Spark, and finishes only when the whole pass
succeeded. The sink's checkpoint, stored beside the rows, is the truth.

A *position* says what has been consumed. For offset slices it is an integer: everything below it is
done (Kafka's "next offset"). For part slices it is an opaque string that only the source reads;
sinks test it for equality and nothing else.
"""

from __future__ import annotations

import json
import os
import re
import socket
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import pyarrow as pa

from dataflow_assets.errors import PermanentError
from dataflow_assets.failpoints import Failpoint
from dataflow_assets.records import Record
from dataflow_assets.secrets import SecretRef
from dataflow_assets.spec import Addition, Spec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Position = int | str
Positions = Mapping[str, Position]

# Columns that travel beside the sink's own in every batch.
OFFSET = "_offset"  # int64: the record's offset, or its ordinal inside a part slice; ascending
N = "_n"  # int32, optional: index of the row within its record
OP = "_op"  # int8, optional: INSERT, UPDATE or DELETE; without the column all rows are inserts
ABSENT = "_absent"  # binary, optional: bit i (little-endian) set: column i was not in the record
INSERT, UPDATE, DELETE = 0, 1, 2
SYSTEM_COLUMNS = (OFFSET, N, OP, ABSENT)

REPLAY = "#replay"  # ends the name of a branch that takes back what was rejected

# Field metadata of a sink's schema, read by the decoders.
KIND = b"dataflow.kind"  # b"json": JSON text as sent; b"numeric": digits as sent, in a string
HAS_DEFAULT = b"dataflow.default"  # b"1": the column may be absent although it is NOT NULL
MAX_LENGTH = b"dataflow.max_length"  # decimal digits: longest text, in characters
KEY = b"dataflow.key"  # in the schema's own metadata: JSON list of the columns rows are matched by
EVERYTHING = "*"  # among the metadata keys that are read: all of them
NO_NUL = b"dataflow.no_nul"  # in the schema's own metadata; b"1": text cannot hold U+0000


@dataclass(frozen=True)
class Address:
    """Where a topic or table is, known without network or secrets; becomes the asset key."""

    system: str
    connection: str
    namespace: str | None
    name: str

    @property
    def parts(self) -> tuple[str, ...]:
        """The address as asset key components, the empty ones left out."""
        return tuple(p for p in (self.system, self.connection, self.namespace, self.name) if p)

    def __str__(self) -> str:
        return "/".join(self.parts)


@dataclass(frozen=True)
class OffsetSlice:
    """Offsets `after <= offset < upto` of one partition; may be committed as a prefix.

    Every row carries its offset, ascending and the same on every re-read. Offsets missing inside
    are normal (transaction markers, compaction).
    """

    partition: str
    after: int
    upto: int

    @property
    def scope(self) -> str:
        """Inside which an offset names one record."""
        return self.partition

    @property
    def empty(self) -> bool:
        """True when there is nothing between the bounds."""
        return self.after >= self.upto


@dataclass(frozen=True)
class PartSlice:
    """One part of a bounded read: committed whole, by compare-and-set `after -> upto`.

    `part` describes the borders for the source; a crash repeats the part with the same borders.
    """

    partition: str
    after: str | None
    upto: str
    part: str = ""

    @property
    def scope(self) -> str:
        """Inside which an ordinal names one record: a later read has parts of the same name."""
        return f"{self.partition}@{self.upto}"

    @property
    def empty(self) -> bool:
        """True when the part is committed already."""
        return self.after == self.upto


Slice = OffsetSlice | PartSlice


@dataclass(frozen=True)
class Span:
    """What one micro-batch covers. Slices are in the order of the source's partitions."""

    slices: tuple[Slice, ...]
    full: bool = False
    """A limit ended it: more is waiting already."""

    @property
    def empty(self) -> bool:
        """True when no slice holds anything to read."""
        return all(piece.empty for piece in self.slices)

    @property
    def after(self) -> Positions:
        """Where each partition stands before the span; parts not begun are left out."""
        return {s.partition: s.after for s in self.slices if s.after is not None}

    @property
    def upto(self) -> Positions:
        """Where each partition stands once the span is done."""
        return {s.partition: s.upto for s in self.slices}


@dataclass(frozen=True)
class Limit:
    """The most that one slice of a span may hold."""

    records: int = 1_000_000
    bytes: int = 64 * 1024 * 1024


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
    """

    epoch: int
    positions: Positions = field(default_factory=dict)
    totals: Totals = Totals()
    source: str | None = None
    target: str | None = None
    manifest: str = ""
    run: str = ""
    committed_at: datetime | None = None


@dataclass(frozen=True)
class Lag:
    """How far the checkpoint is behind: records, seconds since the oldest unread one, the ends."""

    records: int
    seconds: float
    ends: Positions


@dataclass(frozen=True)
class Run:
    """Who drives: named in checkpoints, database sessions and takeover errors."""

    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)

    def __str__(self) -> str:
        return f"run {self.id} on host {self.host} (pid {self.pid})"


@dataclass(frozen=True)
class ErrorRecord:
    """A rejected record as an error sink stores it. `id`: the same on every replay.

    `body`: JSON object with `error` and `original_message` (reference 5.2); `metadata`: JSON.
    """

    id: str
    flow: str
    body: bytes = field(repr=False)
    metadata: bytes = field(repr=False)


@dataclass(frozen=True)
class Entry:
    """A rejected record that waits for a replay."""

    id: str
    branch: str
    stage: str
    n: int
    body: bytes | None = field(repr=False)
    key: bytes | None = field(default=None, repr=False)
    metadata: Mapping[str, Any] = field(default_factory=dict, repr=False)


class Entries(ABC):
    """Rejected records where they are kept: what waits for a replay, and what has had one."""

    @abstractmethod
    def pending(self, flow: str, since: datetime | None, most: int) -> list[Entry]:
        """The oldest entries of a flow without a replay, of all its branches; read only."""

    @abstractmethod
    def replayed(self, ids: Sequence[str]) -> None:
        """Notes that these have had theirs; may be repeated."""


class ErrorStore(Entries):
    """Where an error sink keeps error records: beside no checkpoint, known by their ids."""

    @abstractmethod
    def prepare(self) -> None:
        """On the driver, before anything is read: makes the table or checks that it fits."""

    @abstractmethod
    def store(self, records: Sequence[ErrorRecord]) -> None:
        """Durable when it returns.

        A record whose id is known stays as it is where the system can tell; else a crash between
        here and the commit of the rows stores it twice, under one id.
        """


@dataclass(frozen=True)
class Rejects:
    """What becomes of a record that cannot be stored.

    `table`: it lands beside the target, in the same commit. `errors`: in the error sink, before
    the commit. `skip`: it is counted and logged. `fail`: the run stops at it. `holds`: it lands in
    the error sink, and the run stops at it all the same.
    """

    way: Literal["table", "errors", "skip", "fail"] = "table"
    sink: Sink | None = None
    holds: bool = False
    connection: str | None = None
    """What the error sink's connection is called in this location."""

    @property
    def address(self) -> Address | None:
        """Where the error sink is; None without one."""
        if self.sink is None:
            return None
        address = self.sink.address()
        return replace(address, connection=self.connection) if self.connection else address

    @property
    def fate(self) -> str:
        """What becomes of rejected records, as the end of a sentence about them."""
        if self.way == "errors":
            return f"are in the error sink {self.address}" + (
                ", and the flow stops at them" if self.holds else ""
            )
        return {
            "table": "stand in the table of rejected records",
            "skip": "are skipped: the log names them",
            "fail": "stop the flow",
        }[self.way]


@dataclass(frozen=True)
class Target:
    """One branch of one flow as its sink sees it."""

    flow: str  # namespace/name
    branch: str  # stable identity of the branch within the flow
    manifest: str  # hash of the manifest's content
    source: str  # name of the topic or table read, for messages and rejected records
    source_id: str = ""  # its identity: offsets of a recreated topic are other records
    rejects: Rejects = field(default=Rejects(), repr=False, compare=False)

    @property
    def id(self) -> str:
        """Flow and branch as one key."""
        return f"{self.flow}:{self.branch}"


@dataclass(frozen=True)
class Ticket:
    """What a task needs to write for one branch: frozen, picklable, valid for one epoch."""

    target: Target
    run: Run
    epoch: int
    schema: pa.Schema
    failpoint: Failpoint | None = None


@dataclass(frozen=True)
class Rejection:
    """One record that could not be stored, with its origin and the reason."""

    offset: int
    stage: str  # decode, step, encode or sink
    reason: str
    body: bytes | None
    n: int = 0
    key: bytes | None = None
    step: int | None = None
    """Index of the step that refused it, in `transformations`."""
    step_type: str | None = None
    """The type of that step."""
    error_type: str = ""
    """The class of reference 5.4 where it is known; else it is told from the reason."""
    metadata: Mapping[str, Any] | None = None
    """The message's, as far as it was read."""

    def id(self, target: Target, piece: Slice) -> str:
        """Flow, branch, source, partition, offset, n and stage: the same whenever it is read.

        Of what a replay rejects: the id of the entry that was replayed, and the attempt.
        """
        if isinstance(piece, PartSlice) and target.branch.endswith(REPLAY):
            return next_attempt(json.loads(piece.part)[self.offset], self.n)
        where = f"{target.flow}/{target.branch}/{target.source_id or target.source}"
        return f"{where}/{piece.scope}/{self.offset}/{self.n}/{self.stage}"


_ATTEMPT = re.compile(r"#attempt-(\d+)(?:\.\d+)?$")


def attempt_of(entry: str) -> int:
    """Which attempt an entry's id tells of, counted from 1."""
    found = _ATTEMPT.search(entry)
    return int(found[1]) if found else 1


def next_attempt(entry: str, n: int) -> str:
    """The id of what is rejected once more: of a whole entry, several rows may be."""
    row = f".{n}" if n else ""
    return f"{_ATTEMPT.sub('', entry)}#attempt-{attempt_of(entry) + 1}{row}"


@dataclass(frozen=True)
class Sent:
    """A message as it was sent; `metadata` None: nobody has read it."""

    body: bytes | None
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Chunk:
    """One step of a writer: rows in the sink's schema plus system columns, and what was refused.

    `seen` is the position reached: filtered and rejected records included. `size` counts the bytes
    of the bodies consumed, for totals only. `sent` finds the message of an offset when the sink
    refuses a row after all: a replay takes it through the steps again, by body and metadata.
    """

    rows: pa.RecordBatch
    rejected: Sequence[Rejection]
    seen: int
    size: int
    sent: Mapping[int, Sent] = field(default_factory=dict, repr=False)
    notes: frozenset[str] = frozenset()
    """What a person should be told once, and what is no error."""


@dataclass(frozen=True)
class Receipt:
    """What one writer did with one slice; the pass's only output.

    `position` is what is committed (sinks that commit in `close`) or consumed (sinks that publish
    in `finish`); None when nothing was. `staged` is the sink's own: JSON documents of the files
    that wait for `finish`.
    """

    branch: str
    partition: str
    position: Position | None
    totals: Totals
    staged: tuple[str, ...] = ()


class Writer(ABC):
    """Writes one slice of one branch inside one task. Not shared, not reused."""

    @abstractmethod
    def write(self, chunk: Chunk) -> None:
        """Takes the next rows. Nothing is visible to readers before `close`.

        Raises TransientError, PermanentError or TakenOver; never loses a row in silence: what the
        target refuses becomes a rejection stored with the same commit.
        """

    @abstractmethod
    def close(self, complete: bool) -> Receipt:
        """Commits (slice sinks) or stages (span sinks) what was written.

        `complete` is False where the end of the input cannot be trusted: an offset slice commits
        the prefix it has seen, a part slice commits only when complete.
        """

    @abstractmethod
    def abort(self) -> None:
        """Drops what was written and frees the connection; safe after any error, and twice."""


class SourceSession(ABC):
    """The driver's connection to a source: fixes bounds first, then names what to read."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """The id of the topic or table itself: another one after it was recreated."""

    @abstractmethod
    def start(self) -> Positions:
        """Where a flow without a checkpoint begins, for every partition there is now."""

    @abstractmethod
    def seek(self, where: str) -> Positions:
        """Positions for `earliest`, `latest` or an ISO 8601 timestamp (launchpad, reset)."""

    @abstractmethod
    def ends(self) -> Positions:
        """Where each partition ends right now."""

    @abstractmethod
    def plan(self, after: Positions, limit: Limit, until: Positions | None = None) -> Span:
        """The next span after `after`, its upper bounds fixed now and not beyond `until`.

        A partition missing in `after` starts at its beginning, and what is gone of one that was
        added since is lost. Every partition has a slice, the
        empty ones too. Raises PermanentError naming what was lost when the next offset is gone,
        unless the source says to continue.
        """

    @abstractmethod
    def frame(self, spark: SparkSession, span: Span, columns: frozenset[str]) -> DataFrame:
        """The span's records, each Spark partition holding rows of exactly one slice, in order.

        Columns: `_at` int64 = offset * len(span.slices) + index of the slice, `body` binary, then
        the wanted ones of `key` binary, `timestamp` timestamp, `headers` map<string, binary>.
        """

    @abstractmethod
    def release(self, upto: Positions) -> None:
        """Tells the server what every branch has committed; may be repeated, may be skipped."""

    @abstractmethod
    def lag(self, after: Positions) -> Lag:
        """How far `after` is behind the ends."""

    def peek(self, after: Positions, limit: int) -> Mapping[str, pa.RecordBatch]:  # noqa: ARG002 - what overrides need
        """At most the first `limit` records from `after` on in each partition, for a look.

        Without Spark, and nothing is consumed: no checkpoint, no consumer group, no server moves.
        The columns of `frame`, all of them; `_at` is the offset. A partition missing in `after` is
        read from its beginning, and what is gone by now is passed over.
        """
        raise PermanentError(
            "this source cannot be looked into without moving on; give records with --input FILE"
        )

    def fold(self, positions: Positions) -> Positions:
        """Finished parts folded into the positions to keep; offset sources keep all."""
        return positions

    @abstractmethod
    def close(self) -> None:
        """Frees the connection; safe twice."""


class SinkSession(ABC):
    """The driver's connection to one branch's target, holding one epoch.

    Opening it takes a new epoch: sessions and tasks of older epochs can commit nothing any more
    and stop with TakenOver ("flow X was taken over by run R on host H").
    """

    @property
    @abstractmethod
    def checkpoint(self) -> Checkpoint:
        """The stored checkpoint as of the last `begin`, `restart` or `finish` of this session."""

    @property
    @abstractmethod
    def identity(self) -> str | None:
        """The id of the target table itself (oid, uuid); None while there is no table."""

    @abstractmethod
    def schema(self) -> pa.Schema | None:
        """The target's columns with their metadata (KIND and so on) set; None: no table yet."""

    def row_count(self) -> int | None:
        """The table's rows in all, where that is exact and costs nothing; None elsewhere."""
        return None

    @abstractmethod
    def create(self, sample: pa.Schema) -> None:
        """Makes the table from the manifest's `columns` and the JSON types of a sample.

        Raises PermanentError when that is not allowed, or when no column is known at all (an empty
        sample, and no `columns`), with what to do.
        The sample's types: null, bool, int64, float64, string, struct, list, and pa.json_() where
        records disagree beyond widening.
        """

    @abstractmethod
    def restart(self, positions: Positions, source: str, *, empty: bool = False) -> None:
        """Stores these positions and identities as the new start, under this epoch.

        `empty` takes every row out of the table in the same commit (launchpad `table: truncate`).
        """

    @abstractmethod
    def begin(self, span: Span) -> Span:
        """Stores what must survive a crash before anything is read.

        Start positions of partitions not known yet; the parts of a bounded read. Hands back the
        recorded unfinished span instead where there is one. Asserts the epoch.
        """

    @abstractmethod
    def ticket(self) -> Ticket:
        """What this epoch's tasks need."""

    @abstractmethod
    def finish(self, span: Span, receipts: Sequence[Receipt], source: SourceSession) -> Checkpoint:
        """After the whole pass succeeded: publishes what waits, steps over gaps, folds parts.

        Asserts the epoch; doing it twice changes nothing.
        """

    @abstractmethod
    def forget(self) -> None:
        """Removes the branch's checkpoint (`dataflow reset`); the rows stay."""

    @abstractmethod
    def close(self) -> None:
        """Frees the connection; safe twice."""


class Connector(Spec):
    """A declared connection end: the manifest's `config` block is the object."""

    type: ClassVar[str]

    @abstractmethod
    def address(self) -> Address:
        """Where it points, without resolving or reaching anything."""

    def spellings(self) -> tuple[str | SecretRef, ...]:
        """The ways this end is named in its manifest, for the location's `connections`."""
        return (self.address().connection,)


class Source(Connector):
    """A declared source."""

    format: str = "json"
    tombstones: Annotated[Literal["reject", "skip", "delete"], Addition()] = "reject"
    """What a null message means: an error, nothing, or the deletion of its key."""
    delivers: ClassVar[Literal["messages", "columns", "entries"]] = "messages"
    """`messages`: `SourceSession.frame`. The pass itself reads with `batches`: `columns` are typed
    rows, `entries` are messages with body, key, metadata and the branch they are for."""
    continuous: ClassVar[bool] = False
    """True: new data keeps coming; runs of the flow's own job stay on (Kafka, CDC)."""

    metadata_columns: ClassVar[frozenset[str]] = frozenset()
    """Metadata that `frame` delivers as columns, on request: of key, timestamp, headers."""

    def metadata(self, piece: Slice) -> dict[str, Any]:  # noqa: ARG002 - what overrides need
        """The metadata that all records of a slice share (reference 3.3)."""
        return {}

    @abstractmethod
    def open(self, flow: str) -> SourceSession:
        """Connects. Raises TransientError when it cannot be reached."""

    def confirm(self, identity: str) -> None:
        """Asked inside a task, after the last record of a slice was read and before its commit.

        Raises TransientError when the topic is no longer the one of this identity: what was read
        may be another one's records. Sources that read by identity need not ask.
        """

    def batches(self, piece: Slice) -> Iterator[pa.RecordBatch]:
        """Reads one part inside a task: typed columns; ends only when the part is complete."""
        raise NotImplementedError(f"{self.type} delivers messages")


class Shape(ABC):
    """What a sink stores of a record where that is not simply its body (raw mode).

    Made once per slice, inside the task.
    """

    reads: ClassVar[frozenset[str]] = frozenset()
    """The metadata keys that it looks at."""

    def __init__(self) -> None:
        self.notes: set[str] = set()
        """What a person should be told once."""

    @abstractmethod
    def __call__(self, record: Record) -> Any:
        """A JSON object of the sink's columns; of a null message its own body.

        Raises RejectedRecord("encode", reason).
        """


class Sink(Connector):
    """A declared sink."""

    unknown_fields: Annotated[Literal["reject", "ignore"], Addition()] = "reject"
    """A key of the record that is no column of the target: reject the record, or leave it out."""
    unwraps: ClassVar[bool] = False
    """A body `{"value": {...}, "_metadata": ...}` stands for the object inside it."""
    commits: ClassVar[Literal["slice", "span"]]
    """`slice`: rows and checkpoint in `Writer.close`; `span`: files staged, published by finish."""

    @abstractmethod
    def open(self, target: Target, run: Run) -> SinkSession:
        """Connects, makes the checkpoint's storage, takes a new epoch."""

    @abstractmethod
    def peek(self, target: Target) -> Checkpoint | None:
        """The stored checkpoint, read only: no epoch is taken."""

    @abstractmethod
    def writer(self, ticket: Ticket, piece: Slice) -> Writer:
        """A writer for one slice, inside a task."""

    @property
    def upserts(self) -> bool:
        """True where rows are matched by a key, so that a record read twice stands once."""
        return False

    def error_store(self) -> ErrorStore:
        """This sink as an error sink."""
        raise PermanentError(f"a {self.type} sink cannot take error records")

    def rejected(self) -> Entries:
        """The records that were rejected beside this sink (`onRejected: table`)."""
        raise PermanentError(f"rejected records of a {self.type} sink cannot be replayed")

    def shape(self, schema: pa.Schema | None) -> Shape | None:  # noqa: ARG002 - what overrides need
        """What is stored where it is not the record's own body, in a table with these columns.

        None for `schema`: what the types of a table that is still to be made are told from; values
        may then be times too. Raises PermanentError where the table does not fit.
        """
        return None

    def flush_seconds(self) -> float:
        """The least time between two commits of spans that are not full; 0 for no such bound."""
        return 0.0


def utc_now() -> datetime:
    """Now, with its zone."""
    return datetime.now(UTC)


def local_now() -> datetime:
    """Now, in the zone of this machine."""
    return datetime.now().astimezone()
