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

    @abstractmethod
    def address(self) -> Address:
        """Where it points, without resolving or reaching anything."""

    def spellings(self) -> tuple[str | SecretRef, ...]:
        """The ways this end is named in its manifest, for the location's `connections`."""
        return (self.address().connection,)


class Source(Connector):
    """A declared source."""

    delivers: ClassVar[Literal["messages", "columns", "entries"]] = "messages"
    """`messages`: `SourceSession.frame`. The pass itself reads with `batches`: `columns` are typed
    rows, `entries` are messages with body, key, metadata and the branch they are for."""
    reads_back: ClassVar[bool] = True
    """True: what a sink of the same address writes is read by this source."""
    continuous: ClassVar[bool] = False
    """True: new data keeps coming; runs of the flow's own job stay on (Kafka, CDC)."""

    @property
    def null_messages(self) -> NullMessages:
        """What a null message means; tables have none."""
        return "reject"

    @property
    def poll_seconds(self) -> float:
        """The least time between two questions for what is new; 0 for no such bound."""
        return 0.0

    @property
    def rereads(self) -> str:
        """The option by which rows may come again, so that sinks must upsert; else nothing."""
        return ""

    metadata_keys: ClassVar[Mapping[str, str]] = {}
    """For docs/connectors: each key of a record's metadata, and what it holds."""
    metadata_columns: ClassVar[frozenset[str]] = frozenset()
    """Metadata that `frame` or `batches` delivers as columns, on request."""

    def metadata(self, piece: Slice) -> dict[str, Any]:  # noqa: ARG002 - what overrides need
        """The metadata that all records of a slice share."""
        return {}

    @abstractmethod
    def open(self, flow: str) -> SourceSession:
        """Connects. Raises TransientError when it cannot be reached."""

    def confirm(self, identity: str) -> None:
        """Asked inside a task, after the last record of a slice was read and before its commit.

        Raises TransientError when the topic is no longer the one of this identity: what was read
        may be another one's records. Sources that read by identity need not ask.
        """

    def batches(self, piece: Slice, metadata: frozenset[str]) -> Iterator[pa.RecordBatch]:
        """Reads one part inside a task; ends only when the part is complete.

        Typed rows: bool, integers, floats, decimals, string (with a KIND), binary, date32, time64
        in us, timestamp in us or ns, naive or UTC, lists and structs of these, null. The largest
        and the smallest integer of a date or timestamp is infinity. `metadata` names what is wanted
        of `metadata_columns`: each a column marked METADATA, its Arrow name none of the table's. OP
        may stand beside them. At least one batch, be it without rows, tells the schema.
        """
        raise NotImplementedError(f"{self.type} delivers messages")

    def message_form(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Typed rows whose columns are the keys of their messages; called only for messages."""
        return batch

    @classmethod
    def types(cls) -> tuple[TypeRow, ...]:
        """How the system's types travel, for docs/types.md; messages have only those of JSON."""
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
        """A JSON object of the sink's columns; of a null message its own body.

        Raises RejectedRecord("encode", reason).
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

    @classmethod
    def stored(cls, column: pa.Field) -> str:
        """The type that `SinkSession.create` gives an interchange column, for docs/types.md."""
        raise NotImplementedError(f"{cls.type} makes no columns")

    @classmethod
    def keeps(cls, column: pa.Field) -> bool:  # noqa: ARG003 - what overrides need
        """Whether a table made for a column of the same system has its very type."""
        return False
