"""The declared ends of a flow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

import pyarrow as pa

from dataflow_assets.contracts.address import Address
from dataflow_assets.contracts.checkpoint import Checkpoint, Run
from dataflow_assets.contracts.rejects import Entries, ErrorStore
from dataflow_assets.contracts.schema import TypeRow
from dataflow_assets.contracts.sessions import SinkSession, SourceSession
from dataflow_assets.contracts.slices import Slice
from dataflow_assets.contracts.tasks import Target, Ticket, Writer
from dataflow_assets.errors import PermanentError
from dataflow_assets.records.record import Record
from dataflow_assets.secrets import SecretRef
from dataflow_assets.spec import Addition, Spec

NullMessages = Literal["reject", "skip", "delete"]


class Connector(Spec):
    """A declared connection end: the manifest's `config` block is the object."""

    type: ClassVar[str]
    guarantee: ClassVar[str]
    """For docs/connectors: what a crash at any moment leaves, how, and where that ends."""
    double: ClassVar[bool] = False
    """True: it stands in for a system in tests; manifests may name it only where that is asked."""

    @abstractmethod
    def address(self) -> Address:
        """Where it points, without resolving or reaching anything.

        Called when manifests are loaded, in the code location and on the command line.
        """

    def spellings(self) -> tuple[str | SecretRef, ...]:
        """The ways this end is named in its manifest, for the location's `connections`.

        Called when manifests are loaded.

        Returns:
            Addresses as text, or references to secrets.
        """
        return (self.address().connection,)


class Source(Connector):
    """A declared source."""

    delivers: ClassVar[Literal["messages", "columns", "entries"]] = "messages"
    """`messages`: `SourceSession.frame`. The pass itself reads with `batches`: `columns` are typed
    rows, `entries` are messages in parts, a column `body` and what is known beside it."""
    reads_back: ClassVar[bool] = True
    """True: what a sink of the same address writes is read by this source."""
    continuous: ClassVar[bool] = False
    """True: new data keeps coming; runs of the flow's own job stay on (Kafka, CDC)."""

    @property
    def null_messages(self) -> NullMessages:
        """What a null message means; tables have none.

        Read inside tasks, once for each slice.
        """
        return "reject"

    @property
    def poll_seconds(self) -> float:
        """The least seconds between two questions for what is new; 0 for no such bound.

        Read by the driver whenever it has found nothing new.
        """
        return 0.0

    @property
    def rereads(self) -> str:
        """The option by which rows may come again, so that sinks must upsert; else nothing.

        Read when manifests are loaded.
        """
        return ""

    metadata_keys: ClassVar[Mapping[str, str]] = {}
    """For docs/connectors: each key of a record's metadata, and what it holds."""
    metadata_columns: ClassVar[frozenset[str]] = frozenset()
    """Metadata that `frame` or `batches` delivers as columns, on request."""

    def metadata(self, piece: Slice) -> dict[str, Any]:  # noqa: ARG002 - what overrides need
        """The metadata that all records of a slice share.

        Called inside tasks, once for each slice.

        Returns:
            Values by the keys of `metadata_keys`.
        """
        return {}

    @abstractmethod
    def open(self, flow: str) -> SourceSession:
        """Connects.

        Called by the driver once for each attempt of a run, and by sensors.

        Args:
            flow: `namespace/name`, under which a server may keep something for the flow.

        Raises:
            TransientError when the source cannot be reached; PermanentError when a person must act.
        """

    def confirm(self, identity: str) -> None:
        """Makes sure that what was read is the topic's own.

        Called inside a task, after the last record of a slice was read and before its commit.
        Sources that read by identity need not ask.

        Args:
            identity: of the topic for which the span was planned.

        Raises:
            TransientError when the topic is no longer that one: what was read may be another one's
            records.
        """

    def batches(self, piece: Slice, metadata: frozenset[str]) -> Iterator[pa.RecordBatch]:
        """Reads one part inside a task; ends only when the part is complete.

        Called once for each part, only where `delivers` is not `messages`.

        Args:
            piece: the part.
            metadata: what is wanted of `metadata_columns`: each becomes a column marked METADATA,
                its Arrow name none of the table's. OP may be beside them.

        Returns:
            Typed rows: bool, integers, floats, decimals, string (with a KIND), binary, date32,
            time64 in us, timestamp in us or ns, naive or UTC, lists and structs of these, null. The
            largest and the smallest integer of a date or timestamp is infinity. At least one batch,
            be it without rows, tells the schema. Entries: a column `body` of binary, and those that
            are marked METADATA; `key` and `headers` as in MESSAGES where there are any.

        Raises:
            TransientError when the part cannot be read to its end.
        """
        raise NotImplementedError(f"{self.type} delivers messages")

    def message_form(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Typed rows as batches whose columns are the keys of their messages.

        Called inside tasks for each batch, only where steps or a sink need messages.
        """
        return batch

    @classmethod
    def types(cls) -> tuple[TypeRow, ...]:
        """How the system's types travel, for docs/types.md; messages have only those of JSON.

        Called when the reference is generated.
        """
        return ()


class MessageSource(Source):
    """A declared source of messages."""

    tombstones: Annotated[NullMessages, Addition()] = "reject"
    """What a null message means: an error, nothing, or the deletion of its key."""

    @property
    def null_messages(self) -> NullMessages:
        """As declared."""
        return self.tombstones


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
        """What the sink stores of a record.

        Called inside tasks, once for each record.

        Returns:
            A JSON object of the sink's columns; of a null message its own body.

        Raises:
            RejectedRecord("encode", reason).
        """


class Sink(Connector):
    """A declared sink."""

    unknown_fields: Annotated[Literal["reject", "ignore"], Addition()] = "reject"
    """A key of the record that is no column of the target: reject the record, or leave it out."""
    unwraps: ClassVar[bool] = False
    """A body `{"value": {...}, "_metadata": ...}` stands for the object inside it."""
    takes: ClassVar[Literal["columns", "messages"]] = "columns"
    """`messages`: bodies, keys and headers byte for byte, in the schema MESSAGES. A null value is a
    tombstone; a row of OP DELETE keeps its body, for the sink to find the key in."""
    commits: ClassVar[Literal["slice", "span"]]
    """`slice`: rows and checkpoint in `Writer.close`; `span`: files staged, published by finish."""

    @abstractmethod
    def open(self, target: Target, run: Run) -> SinkSession:
        """Connects, makes the checkpoint's storage, takes a new epoch.

        Called by the driver once for each branch and attempt of a run.

        Args:
            target: the branch, by which its checkpoint is found.
            run: who drives, for takeover errors.

        Raises:
            TransientError when the sink cannot be reached; PermanentError when a person must act.
        """

    @abstractmethod
    def peek(self, target: Target) -> Checkpoint | None:
        """The stored checkpoint, read only: no epoch is taken.

        Called by sensors and by `dataflow status`, while a run may be active.

        Returns:
            None where nothing is stored.

        Raises:
            TransientError when the sink cannot be reached.
        """

    @abstractmethod
    def writer(self, ticket: Ticket, piece: Slice) -> Writer:
        """A writer for one slice.

        Called inside a task, once for each slice; a repeated task makes another one.

        Args:
            ticket: from `SinkSession.ticket`, pickled.
            piece: the slice that the writer is for.

        Raises:
            TransientError when the sink cannot be reached; TakenOver when the ticket's epoch is
            over.
        """

    @property
    def upserts(self) -> bool:
        """True where rows are matched by a key, so that a record that is read twice is stored once.

        Read when manifests are loaded, and when a run rewinds.
        """
        return False

    def error_store(self) -> ErrorStore:
        """This sink as an error sink.

        Called by the driver once for each attempt, and inside tasks.

        Raises:
            PermanentError where the system cannot keep error records.
        """
        raise PermanentError(f"a {self.type} sink cannot take error records")

    def rejected(self) -> Entries:
        """The records that were rejected beside this sink (`onRejected: table`).

        Called by a replay, on the driver.

        Raises:
            PermanentError where they cannot be replayed.
        """
        raise PermanentError(f"rejected records of a {self.type} sink cannot be replayed")

    def shape(self, schema: pa.Schema | None) -> Shape | None:  # noqa: ARG002 - what overrides need
        """What is stored where it is not the record's own body, in a table with these columns.

        Called inside tasks once for each slice, and on the driver when a branch opens.

        Args:
            schema: of the table; None for the shape from which a table that does not exist yet gets
                its types: values may then be times too.

        Raises:
            PermanentError where the table does not fit.
        """
        return None

    def flush_seconds(self) -> float:
        """The least seconds between two commits of spans that are not full; 0 for no such bound.

        Read by the driver in each turn of the loop.
        """
        return 0.0

    @classmethod
    def stored(cls, column: pa.Field) -> str:
        """The type that `SinkSession.create` gives an interchange column, for docs/types.md.

        Called when the reference is generated.
        """
        raise NotImplementedError(f"{cls.type} makes no columns")

    @classmethod
    def keeps(cls, column: pa.Field) -> bool:  # noqa: ARG003 - what overrides need
        """Whether a table made for a column of the same system has its very type.

        Called when the reference is generated.
        """
        return False
