"""The Kafka source as a manifest declares it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, SecretStr
from typing_extensions import override

from dataflow_assets.connectors.kafka.durations import Duration, milliseconds
from dataflow_assets.connectors.kafka.settings import KafkaConnection, Later, Problem, Ref, Tls
from dataflow_assets.contracts import MessageSource, Slice
from dataflow_assets.secrets import Fills
from dataflow_assets.spec import Addition, Hint, Spec

if TYPE_CHECKING:
    from dataflow_assets.connectors.kafka.source.session import KafkaSession

_AVRO = "Avro messages"
_INT32 = 2**31 - 1


def moment(text: str) -> datetime:
    """An ISO 8601 date and time; without a zone it is in UTC. ValueError for anything else."""
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _with_zone(text: str) -> str:
    try:
        zone = datetime.fromisoformat(text).tzinfo
    except ValueError:
        zone = None
    if zone is None:
        raise ValueError("must be a date and time with a zone, like 2026-01-31T00:00:00Z")
    return text


Timestamp = Annotated[str, AfterValidator(_with_zone)]


class RegistryAuth(Spec):
    """User and password of the schema registry; sent only if both are there."""

    username: str | None = None
    """User name."""
    username_secret_ref: Annotated[Ref, Fills("username")] = None
    """Secret with the user name."""
    password: SecretStr | None = None
    """Password."""
    password_secret_ref: Annotated[Ref, Fills("password")] = None
    """Secret with the password."""


class SchemaRegistry(Spec):
    """A registry that speaks Confluent's API."""

    url: str = ""
    """Address of the registry."""
    url_secret_ref: Annotated[Ref, Fills("url", required=True)] = None
    """Secret with the registry's address."""
    basic_auth: RegistryAuth | None = None
    """Basic authentication."""
    tls: Tls | None = None
    """Certificates."""


class KafkaSource(KafkaConnection, MessageSource):
    """Reads one topic: only committed records, in the order of their partition."""

    type: ClassVar[str] = "kafka"
    guarantee: ClassVar[str] = (
        "Every committed record exactly once, by its offset: positions are the sink's checkpoint, "
        "never the consumer group's. What retention took before it was read is an error that names "
        "it, unless `onDataLoss: continue`; a topic made anew is another one (`onTopicRecreated`)."
    )
    continuous: ClassVar[bool] = True
    metadata_columns: ClassVar[frozenset[str]] = frozenset({"key", "timestamp", "headers"})
    metadata_keys: ClassVar[Mapping[str, str]] = {
        "topic": "name of the topic",
        "partition": "number of the partition",
        "offset": "the record's offset in it",
        "key": "the record's key as text; empty where there is none",
        "timestamp": "the time that the record carries",
        "headers": "mapping of names to texts, the last of a name; missing where there are none",
    }

    consumer_group: str = Field(default="dataflow-operator", min_length=1)
    """Group whose offsets a new flow adopts, and that is told what has been committed."""
    consumer_group_secret_ref: Annotated[Ref, Fills("consumer_group")] = None
    """Secret with the consumer group."""
    format: Annotated[Literal["json", "avro"], Later(_AVRO, ("json",))] = "json"
    """Format of the messages."""
    schema_registry: Annotated[SchemaRegistry | None, Later(_AVRO)] = None
    """Where Avro schemas are kept."""
    avro_schema: Annotated[str | None, Later(_AVRO)] = None
    """The Avro schema of all messages, as JSON."""
    avro_schema_secret_ref: Annotated[Ref, Later(_AVRO), Fills("avro_schema")] = None
    """Secret with the Avro schema."""
    avro_schema_file: Annotated[str | None, Later(_AVRO)] = None
    """Path of the Avro schema."""
    consumer_max_wait: Duration | None = None
    """How long the broker may hold a fetch back until `fetchMinBytes` are there; 5ms by default."""
    fetch_min_bytes: int | None = Field(default=None, ge=0, le=_INT32)
    """Least bytes of a fetch."""
    fetch_max_bytes: int | None = Field(default=None, gt=0, le=_INT32)
    """Most bytes of a fetch; 100 MiB by default."""
    max_partition_fetch_bytes: int | None = Field(default=None, gt=0, le=_INT32)
    """Most bytes of a fetch from one partition; 16 MiB by default."""
    net_read_timeout: Duration | None = None
    """How long an answer of the broker may take."""
    net_write_timeout: Annotated[
        Duration | None, Hint("netReadTimeout bounds request and answer together")
    ] = None
    """How long sending a request may take."""
    starting_offsets: Annotated[Literal["group", "earliest", "latest", "timestamp"], Addition()] = (
        "group"
    )
    """Where a flow without a checkpoint begins. `group`: at the offsets that another program has
    committed for `consumerGroup`, where there are none at the earliest."""
    starting_timestamp: Annotated[Timestamp | None, Addition()] = None
    """With `startingOffsets: timestamp`: the first record that is not older."""
    on_data_loss: Annotated[Literal["fail", "continue"], Addition()] = "fail"
    """When retention has removed records that were not read: stop, or go on with a warning."""
    on_topic_recreated: Annotated[Literal["fail", "restart"], Addition()] = "fail"
    """When the topic was deleted and made anew: stop, or read the new one from its beginning."""

    def _problems(self) -> Iterator[Problem]:
        yield from super()._problems()
        wait, read = self.consumer_max_wait, self.net_read_timeout
        if wait and read and milliseconds(read) <= milliseconds(wait):
            yield "value_error", "", "netReadTimeout must be greater than consumerMaxWait"
        if self.starting_offsets == "timestamp" and not self.starting_timestamp:
            yield "value_error", "", "startingTimestamp is required: startingOffsets is timestamp"
        if self.starting_timestamp and self.starting_offsets != "timestamp":
            sentence = "startingTimestamp is used only with startingOffsets: timestamp"
            yield "value_error", "", sentence

    @override
    def metadata(self, piece: Slice) -> dict[str, Any]:
        return {"topic": self.topic, "partition": int(piece.partition)}

    @override
    def open(self, flow: str) -> KafkaSession:
        from dataflow_assets.connectors.kafka.source.session import KafkaSession

        return KafkaSession(self, flow)

    @override
    def confirm(self, identity: str) -> None:
        from dataflow_assets.connectors.kafka.source import confirm_topic

        confirm_topic.confirm(self.bootstrap(), self.topic, identity)
