"""The `kafka` sink as a manifest declares it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator
from typing_extensions import override

from dataflow_assets.connectors.kafka.durations import Duration, milliseconds
from dataflow_assets.connectors.kafka.settings import KafkaConnection, Problem
from dataflow_assets.contracts import (
    Checkpoint,
    Entries,
    ErrorStore,
    Run,
    Sink,
    SinkSession,
    Slice,
    Target,
    Ticket,
    Writer,
)
from dataflow_assets.errors import PermanentError
from dataflow_assets.records.paths.path import Path
from dataflow_assets.records.placeholders import METADATA, interpolated
from dataflow_assets.spec import Addition, Hint

if TYPE_CHECKING:
    from dataflow_assets.connectors.kafka.rejected.topic import KafkaErrors

Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]

_ALL = "every record is acknowledged by all replicas that are in sync, as transactions need it"
_ONE_COMMIT = "a slice of a micro-batch is one transaction: its records are seen together"


class KafkaSink(KafkaConnection, Sink):
    """Records into a topic, exactly once for readers of committed records.

    The records of a slice and the checkpoint of its partition are one transaction. Value, key and
    headers are those of the source's record, byte for byte where no step has changed the body; a
    record without key has none here. Keys choose partitions as Java's producers do (murmur2).

    Checkpoints are in a topic of their own, `dataflow.checkpoints.*`, which is made when it is
    missing. The brokers need transactions; Kafka 3.7 or later checks that records belong to an
    open one.
    """

    type: ClassVar[str] = "kafka"
    commits: ClassVar[Literal["slice", "span"]] = "slice"
    takes: ClassVar[Literal["columns", "messages"]] = "messages"
    guarantee: ClassVar[str] = (
        "Exactly once for readers of committed records: the records of a slice and the position "
        "of its partition are one transaction; drivers and tasks that come late are fenced."
    )

    required_acks: Annotated[Literal["all", "local", "none"], Hint(_ALL)] = "all"
    """Who must have a record before it counts as written."""
    compression: Compression = "none"
    """How batches of records are compressed."""
    idempotent: Annotated[bool, Hint("the producer is transactional, and so idempotent")] = True
    """A record that is sent again is not stored again."""
    max_open_requests: int = Field(default=5, ge=1)
    """Requests on their way to one broker; more than 5 are served as 5."""
    async_: Annotated[bool | None, Hint(_ONE_COMMIT), Field(alias="async")] = None
    """Collect records before they are sent."""
    flush_messages: Annotated[int | None, Hint(_ONE_COMMIT), Field(ge=0)] = None
    """Records after which they are sent."""
    flush_bytes: Annotated[int | None, Hint(_ONE_COMMIT), Field(ge=0)] = None
    """Bytes after which records are sent."""
    flush_frequency: Annotated[Duration | None, Hint(_ONE_COMMIT)] = None
    """Time after which records are sent."""
    key_field: Annotated[Path | None, Addition()] = None
    """Path into the body: its value, as text, is the record's key."""
    key_template: Annotated[str | None, Addition()] = None
    """The record's key as text with placeholders `${$.path}`."""
    topic_field: Annotated[Path | None, Addition()] = None
    """Path into the body: the topic of this record; without a value there it is `topic`."""
    upsert_mode: Annotated[bool, Addition()] = False
    """For compacted topics: every record needs a key, and a delete becomes a record without value,
    the key's tombstone."""
    conflict_key: Annotated[tuple[Path, ...], Addition()] = ()
    """With `upsertMode`: the paths into the body that make the key; several as a JSON object. Of a
    null message they are looked up in its own key, where that is an object."""
    auto_create_topic: Annotated[bool, Addition()] = False
    """Make a missing topic; compacted with `upsertMode`."""
    topic_partitions: Annotated[int | None, Addition(), Field(ge=1)] = None
    """Partitions of a topic that `autoCreateTopic` makes; the broker's default without."""
    topic_replicas: Annotated[int | None, Addition(), Field(ge=1)] = None
    """Replicas of a topic that `autoCreateTopic` makes; the broker's default without."""
    transaction_timeout: Annotated[Duration, Addition()] = "10m"
    """How long a slice may take; after that the broker ends its transaction. Until then a task that
    died holds back readers of committed records, unless the flow goes on."""

    @field_validator("conflict_key", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        if isinstance(value, list):
            return tuple(value)
        return (value,) if isinstance(value, str) else value or ()

    @field_validator("key_template")
    @classmethod
    def _readable(cls, value: str | None) -> str | None:
        if value is not None:
            interpolated(value, "")
            if METADATA.search(value) or "${now}" in value:
                raise ValueError("a key is made of the body alone: allowed is ${$.path}")
        return value

    def _problems(self) -> Iterator[Problem]:
        yield from super()._problems()
        if (
            "idempotent" in self.model_fields_set
            and self.idempotent
            and self.required_acks != "all"
        ):
            yield "value_error", "requiredAcks", "idempotent: true needs requiredAcks: all"
        if self.conflict_key and not self.upsert_mode:
            yield "value_error", "conflictKey", "conflictKey requires upsertMode: true"
        keys = {
            "keyField": self.key_field,
            "keyTemplate": self.key_template,
            "conflictKey": self.conflict_key,
        }
        given = [name for name, value in keys.items() if value]
        if len(given) > 1:
            yield "value_error", given[1], f"{' and '.join(given)} exclude each other: keep one"
        made = {"topicPartitions": self.topic_partitions, "topicReplicas": self.topic_replicas}
        for name in (name for name, value in made.items() if value and not self.auto_create_topic):
            yield "value_error", name, f"{name} requires autoCreateTopic: true"

    @property
    @override
    def upserts(self) -> bool:
        return self.upsert_mode

    @override
    def open(self, target: Target, run: Run) -> SinkSession:
        from dataflow_assets.connectors.kafka.sink.session import KafkaSinkSession

        return KafkaSinkSession(self, target, run)

    @override
    def peek(self, target: Target) -> Checkpoint | None:
        from dataflow_assets.connectors.kafka.sink.checkpoint_topic import Ledger

        stored = Ledger.of(self.bootstrap(), target).look()
        return stored.state.checkpoint if stored and stored.state.known else None

    @override
    def writer(self, ticket: Ticket, piece: Slice) -> Writer:
        from dataflow_assets.connectors.kafka.sink.writer import KafkaWriter

        return KafkaWriter(self, ticket, piece)

    @override
    def error_store(self) -> ErrorStore:
        return self._errors(self.topic)

    @override
    def rejected(self) -> Entries:
        return self._errors(self.rejected_topic)

    @property
    def rejected_topic(self) -> str:
        """Where records go that were rejected beside this sink."""
        return f"{self.topic}.rejected"

    def settings(self) -> dict[str, Any]:
        """What the declaration says about the producer."""
        return {
            "compression.type": self.compression,
            "max.in.flight.requests.per.connection": min(self.max_open_requests, 5),
            "transaction.timeout.ms": milliseconds(self.transaction_timeout),
        }

    def no_topic(self) -> PermanentError:
        """Why there is nowhere to write, and the two ways out."""
        return PermanentError(
            f"topic {self.topic} does not exist on kafka {self.bootstrap()}; create it, or set "
            f"autoCreateTopic: true"
        )

    def _errors(self, topic: str) -> KafkaErrors:
        from dataflow_assets.connectors.kafka.rejected.topic import KafkaErrors

        return KafkaErrors(self.bootstrap(), topic, self.topic_replicas)
