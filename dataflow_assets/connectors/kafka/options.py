"""All that a manifest may say about a Kafka source or sink: fields and their validators.

How the cluster is reached, which both share, is in `connection`. Loading a manifest needs these two
modules and no Kafka client.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr, field_validator
from typing_extensions import override

from dataflow_assets.connectors.kafka.cluster import Cluster
from dataflow_assets.connectors.kafka.connection import KafkaConnection, Ref
from dataflow_assets.connectors.kafka.times import Duration, Timestamp, milliseconds
from dataflow_assets.connectors.kafka.values import Begin, End, ValueReader, ValueWriter
from dataflow_assets.contracts import SinkTraits
from dataflow_assets.errors import PermanentError
from dataflow_assets.formats.message_format import MessageFormat
from dataflow_assets.formats.sink_options import FormattedSink
from dataflow_assets.formats.source_options import FormattedSource
from dataflow_assets.formats.value_schema import ValueSchema
from dataflow_assets.records.paths.path import Path
from dataflow_assets.records.placeholders import METADATA, value_of
from dataflow_assets.secrets import Fills
from dataflow_assets.spec import Addition, Hint, OneOrMany, Requires

_INT32 = 2**31 - 1
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]

_ALL = "every record is acknowledged by all replicas that are in sync, as transactions need it"
_ONE_COMMIT = "a slice of a micro-batch is one transaction: its records are seen together"
_FETCH_BOUNDS = {
    "fetch.wait.max.ms": (0, 5_000),  # below the silence after which tasks give a slice up
    "socket.timeout.ms": (1_000, 300_000),
    "fetch.min.bytes": (1, 100_000_000),
    "fetch.max.bytes": (1_000_000, 1_000_000_000),
    "fetch.message.max.bytes": (1, 1_000_000_000),
}


class KafkaSourceOptions(KafkaConnection, FormattedSource):
    """Options of a source that reads a topic."""

    consumer_group: str = Field(default="dataflow-operator", min_length=1)
    """A new flow starts at the offsets that another program has committed for this group. The flow
    commits its progress to the group, but goes on from its own checkpoint."""
    consumer_group_secret_ref: Annotated[Ref, Fills("consumer_group")] = None
    """Secret with the consumer group."""
    consumer_max_wait: Duration | None = None
    """How long the broker may hold a fetch back until `fetchMinBytes` are there; 5ms by default."""
    fetch_min_bytes: int | None = Field(default=None, ge=0, le=_INT32)
    """Least bytes of a fetch."""
    fetch_max_bytes: int | None = Field(default=None, gt=0, le=_INT32)
    """Most bytes of a fetch; 100 MiB by default."""
    max_partition_fetch_bytes: int | None = Field(default=None, gt=0, le=_INT32)
    """Most bytes of a fetch from one partition; 16 MiB by default."""
    net_read_timeout: Duration | None = None
    """How long an answer of the broker may take, such as `30s`."""
    net_write_timeout: Annotated[
        Duration | None, Hint("netReadTimeout bounds request and answer together")
    ] = None
    """How long sending a request may take."""
    starting_offsets: Annotated[Literal["group", "earliest", "latest", "timestamp"], Addition()] = (
        "group"
    )
    """Where a flow without a checkpoint begins. `group`: at the offsets that another program has
    committed for `consumerGroup`, or at the earliest record where there are none."""
    starting_timestamp: Annotated[Timestamp | None, Addition()] = None
    """With `startingOffsets: timestamp`: the flow begins at the first record of this time or
    later."""
    on_data_loss: Annotated[Literal["fail", "continue"], Addition()] = "fail"
    """When retention has removed records that were not read: stop, or go on with a warning."""
    on_topic_recreated: Annotated[Literal["fail", "restart"], Addition()] = "fail"
    """When the topic was deleted and re-created: stop, or read the new topic from its beginning."""

    _values: ValueReader | None = PrivateAttr(default=None)
    _begin: Begin | None = PrivateAttr(default=None)
    _end: End | None = PrivateAttr(default=None)

    def reading(
        self, values: ValueReader, begin: Begin | None = None, end: End | None = None
    ) -> Self:
        """Returns this source with what only manifest languages say: no option can.

        Args:
            values: reads messages, instead of `format`.
            begin: where a flow without a checkpoint begins, instead of `startingOffsets`.
            end: where the flow ends for ever.
        """
        copy = self.model_copy()
        copy._values, copy._begin, copy._end = values, begin, end  # noqa: SLF001
        return copy

    @property
    def values(self) -> ValueReader | None:
        return self._values

    @property
    def begin(self) -> Begin | None:
        return self._begin

    @property
    def end(self) -> End | None:
        return self._end

    @override
    def message_format(self) -> MessageFormat | None:
        if self._values is None:
            return super().message_format()
        return self._values.message_format(
            self.schema_registry.client() if self.schema_registry else None
        )

    @override
    def cluster(self) -> Cluster:
        if not self.consumer_group:  # with which librdkafka ends the process
            raise PermanentError(
                "the secret of consumerGroupSecretRef is empty: it must hold a name"
            )
        return super().cluster()

    def fetch_settings(self) -> dict[str, int]:
        """Declared bounds of fetches as librdkafka's settings, inside of its limits."""
        wait, read = self.consumer_max_wait, self.net_read_timeout
        declared = {
            "fetch.wait.max.ms": milliseconds(wait) if wait else None,
            "socket.timeout.ms": milliseconds(read) if read else None,
            "fetch.min.bytes": self.fetch_min_bytes,
            "fetch.max.bytes": self.fetch_max_bytes,
            "fetch.message.max.bytes": self.max_partition_fetch_bytes,
        }
        settings = {name: value for name, value in declared.items() if value is not None}
        bounds = {name: _FETCH_BOUNDS[name] for name in settings}
        return {n: min(max(settings[n], least), most) for n, (least, most) in bounds.items()}

    @override
    def broken_rules(self) -> Iterator[str]:
        yield from super().broken_rules()
        wait, read = self.consumer_max_wait, self.net_read_timeout
        if wait and read and milliseconds(read) <= milliseconds(wait):
            yield "netReadTimeout must be greater than consumerMaxWait"
        if self.starting_offsets == "timestamp" and not self.starting_timestamp:
            yield "startingTimestamp is required: startingOffsets is timestamp"
        if self.starting_timestamp and self.starting_offsets != "timestamp":
            yield "startingTimestamp is used only with startingOffsets: timestamp"


class KafkaSinkOptions(KafkaConnection, FormattedSink):
    """Options of a sink that writes a topic."""

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
    conflict_key: Annotated[tuple[Path, ...], OneOrMany, Addition(), Requires("upsert_mode")] = ()
    """With `upsertMode`: the paths into the body that make the key; several as a JSON object. Of a
    null message they are looked up in its own key, where that is an object."""
    auto_create_topic: Annotated[bool, Addition()] = False
    """Make a missing topic; compacted with `upsertMode`."""
    topic_partitions: Annotated[
        int | None, Addition(), Requires("auto_create_topic"), Field(ge=1)
    ] = None
    """Partitions of a topic that `autoCreateTopic` makes; the broker's default without."""
    topic_replicas: Annotated[
        int | None, Addition(), Requires("auto_create_topic"), Field(ge=1)
    ] = None
    """Replicas of a topic that `autoCreateTopic` makes; the broker's default without."""
    transaction_timeout: Annotated[Duration, Addition()] = "10m"
    """How long a slice may take; after that the broker ends its transaction. Until then the open
    transaction of a task that died blocks read_committed readers, unless the flow goes on."""

    _values: ValueWriter | None = PrivateAttr(default=None)

    @field_validator("key_template")
    @classmethod
    def _readable(cls, value: str | None) -> str | None:
        if value is not None:
            value_of(value, "")
            if METADATA.search(value) or "${now}" in value:
                raise ValueError("a key is made of the body alone: allowed is ${$.path}")
        return value

    @override
    def broken_rules(self) -> Iterator[str]:
        yield from super().broken_rules()
        if (
            "idempotent" in self.model_fields_set
            and self.idempotent
            and self.required_acks != "all"
        ):
            yield "requiredAcks: idempotent: true needs requiredAcks: all"
        keys = {
            "keyField": self.key_field,
            "keyTemplate": self.key_template,
            "conflictKey": self.conflict_key,
        }
        filled = [name for name, value in keys.items() if value]
        if len(filled) > 1:
            yield f"{filled[1]}: {' and '.join(filled)} exclude each other: keep one"

    @property
    @override
    def traits(self) -> SinkTraits:
        own = self.conflict_key or self.key_field or self.key_template
        return SinkTraits(
            upserts=self.upsert_mode,
            reads_null_keys=self.upsert_mode and bool(own),
            replaces_whole_rows=True,
        )

    def writing(self, values: ValueWriter) -> Self:
        """Returns this sink with values that only a manifest language describes: no option can."""
        copy = self.model_copy()
        copy._values = values  # noqa: SLF001
        return copy

    @property
    def values(self) -> ValueWriter | None:
        return self._values

    @override
    def value_schema(self, topic: str) -> ValueSchema | None:
        if self._values is None:
            return super().value_schema(topic)
        registry = self.schema_registry.client() if self.schema_registry else None
        return self._values.value_schema(topic, registry)

    @property
    def rejected_topic(self) -> str:
        """Returns where records go that were rejected beside this sink."""
        return f"{self.topic}.rejected"

    def producer_settings(self) -> dict[str, Any]:
        return {
            "compression.type": self.compression,
            "max.in.flight.requests.per.connection": min(self.max_open_requests, 5),
            "transaction.timeout.ms": milliseconds(self.transaction_timeout),
        }

    def no_topic(self, probably: str = "") -> PermanentError:
        """Why there is nowhere to write, and the ways out; `probably`: which topic was meant."""
        return PermanentError(
            f"topic {self.topic} does not exist on kafka {self.bootstrap()}; create it, or set "
            f"autoCreateTopic: true{probably}"
        )
