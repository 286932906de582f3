"""Tables as the sources and sinks of flows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from dataflow_assets.connectors.kafka import KafkaSink, KafkaSource
from dataflow_assets.contracts import Connector, Sink
from dataflow_assets.formats.schema_registry import SchemaRegistry
from dataflow_assets.languages.common.client_keys import CLIENT
from dataflow_assets.languages.common.client_security import (
    ClientSetting,
    field_or_reference,
    security,
)
from dataflow_assets.languages.common.documents import Document, NodePlace, Path
from dataflow_assets.languages.common.key_tables import Key, entry
from dataflow_assets.languages.common.notes import Notes, Where
from dataflow_assets.languages.sql.kafka_values import TableReader, TableWriter
from dataflow_assets.languages.sql.reader.change_formats import DEBEZIUM_CONFLUENT
from dataflow_assets.languages.sql.reader.databases import of_database
from dataflow_assets.languages.sql.reader.jdbc import jdbc
from dataflow_assets.languages.sql.reader.options import CONFLUENT, JDBC, KAFKA, UPSERT
from dataflow_assets.languages.sql.reader.scans import begin, end
from dataflow_assets.languages.sql.reader.tables import FlinkDeclared

AnyConnector = TypeVar("AnyConnector", bound=Connector)
PROPERTIES = "properties."
_BROKER = re.compile(r"(?:[\w.-]*://)?((?:\[[\w:.%]+\]|[\w.%-]+):\d{1,5})", re.ASCII)
PRODUCERS: tuple[Key, ...] = (
    Key("acks", "ignored", "All replicas that are in sync acknowledge."),
    Key("compression.type", "used", "How batches are compressed."),
    Key("allow.auto.create.topics", "used", "`false`: a missing topic is not created.", "true"),
    Key("transaction.timeout.ms", "used", "How long a slice may take.", "10 minutes"),
    Key("enable.idempotence", "ignored", "The producer is idempotent."),
    Key("batch.size", "ignored", "Batches are the product's own."),
    Key("linger.ms", "ignored", "Batches are the product's own."),
    Key("buffer.memory", "ignored", "Batches are the product's own."),
    Key("retries", "ignored", "Retries are the product's own."),
    Key("delivery.timeout.ms", "ignored", "Time limits are the product's own."),
)
_OVERRIDDEN = re.compile(r"(key|value)\.(de)?serializer|transactional\.id|partition\.discovery.*")
_PROPERTIES = (CLIENT, PRODUCERS)
_URLS = ("url", "schema-registry.url")


def source(table: FlinkDeclared, flow: str, notes: Notes) -> KafkaSource | None:
    """The table as a source of a flow; None where `notes` has got the reason."""
    if table.layouts is None:
        message = "is a sink only: a query reads a table of kafka or upsert-kafka"
        notes.wrong((table.document, "connector"), message)
        return None
    reached, (fields, first), last = (
        _connection(table, notes),
        begin(table, notes),
        end(table, notes),
    )
    config = {
        **reached,
        **fields,
        "topic": table.text("topic"),
        "consumer_group": table.text("properties.group.id", f"KafkaSource-{flow}"),
        "schema_registry": registry(table, notes),
        "on_topic_recreated": "fail",
    }
    built = _make(KafkaSource, config, table, notes)
    return built and built.reading(TableReader(table.layouts), first, last)


def sink(table: FlinkDeclared, notes: Notes) -> Sink | None:
    """The table as a sink; None where `notes` has got the reason."""
    if table.layouts is None:
        return jdbc(table, notes) if table.connector == JDBC else of_database(table, notes)
    config: dict[str, Any] = {
        **_connection(table, notes),
        "topic": table.text("topic"),
        "schema_registry": registry(table, notes),
        "upsert_mode": table.connector == UPSERT,
        "auto_create_topic": table.text("properties.allow.auto.create.topics", "true") != "false",
    }
    if compression := table.text("properties.compression.type"):
        config["compression"] = compression
    if timeout := table.text("properties.transaction.timeout.ms"):
        config["transaction_timeout"] = f"{timeout}ms"
    if table.text("sink.partitioner", "default") != "default":
        message = "only default is supported: by the key, as Java's producers do"
        notes.wrong((table.document, "sink.partitioner"), message)
    built = _make(KafkaSink, config, table, notes)
    folded = table.buffer.rows if table.buffer else 0
    return built and built.writing(TableWriter(table.layouts, folded))


def _connection(table: FlinkDeclared, notes: Notes) -> dict[str, Any]:
    """Brokers and security, of the options `properties.*`."""
    document = _without_prefix(table)
    client_settings: dict[str, ClientSetting] = {}
    for key, text in document.value.items():
        client_settings[key] = ClientSetting(text, (document, key))
        _check_property(key, table, document, notes)
    where = (document, "bootstrap.servers")
    brokers = [part.strip() for part in document.value.get("bootstrap.servers", "").split(",")]
    matches = [_BROKER.fullmatch(part) for part in brokers if part]
    if not all(matches) or not matches:
        notes.wrong(where, "must be host:port, several separated by commas, like kafka-1:9092")
    return {
        "brokers": tuple(match[1] for match in matches if match),
        **security(client_settings, notes, where),
    }


def _without_prefix(table: FlinkDeclared) -> Document:
    """The client's properties by their own keys, in their own places."""
    properties = {
        key.removeprefix(PROPERTIES): one.value
        for key, one in table.options.items()
        if key.startswith(PROPERTIES)
    }
    places: dict[Path, NodePlace] = {(): table.document.places[()]}
    places |= {(key,): table.document.places[f"{PROPERTIES}{key}",] for key in properties}
    return Document(table.document.file, properties, places)


def _check_property(key: str, table: FlinkDeclared, document: Document, notes: Notes) -> None:
    where = (document, key)
    if key in ("bootstrap.servers", "group.id"):
        return
    if key == "auto.offset.reset":
        _check_reset(table, where, notes)
        return
    if key == "isolation.level":
        if document.value[key].strip() != "read_committed":
            notes.note(where, "has no effect: only committed records are read")
        return
    key_entry = entry(key, *_PROPERTIES)
    if key_entry is not None and key_entry.verdict == "refused":
        notes.wrong(where, key_entry.says, key=True)
    elif key_entry is not None and key_entry.verdict == "ignored":
        notes.idle(where)
    elif key_entry is None:
        reason = "it is set by the connector" if _OVERRIDDEN.fullmatch(key) else "is not known here"
        notes.note(where, f"has no effect: {reason}")


def _check_reset(table: FlinkDeclared, where: Where, notes: Notes) -> None:
    if table.connector == UPSERT or table.text("scan.startup.mode", "group-offsets") != (
        "group-offsets"
    ):
        notes.note(where, "has no effect: the table says itself where it begins")
    elif table.text(f"{PROPERTIES}auto.offset.reset").strip() != "earliest":
        notes.wrong(
            where,
            "must be earliest: where the group has no offsets, a flow begins at the earliest "
            "record; to begin at the end set scan.startup.mode to latest-offset",
        )


def _make(
    cls: type[AnyConnector], given: Mapping[str, Any], table: FlinkDeclared, notes: Notes
) -> AnyConnector | None:
    places = {
        "brokers": (table.document, "properties.bootstrap.servers"),
        "topic": (table.document, "topic"),
        "compression": (table.document, "properties.compression.type"),
        "transaction_timeout": (table.document, "properties.transaction.timeout.ms"),
        "transactionTimeout": (table.document, "properties.transaction.timeout.ms"),
        "sasl": (table.document, "properties.sasl.mechanism"),
    }
    if not given["brokers"]:
        return None  # which was said in the words of the file
    try:
        return cls(**given)
    except ValidationError as error:
        notes.refuse(error, places, (table.document, "connector"))
        return None


def registry(table: FlinkDeclared, notes: Notes) -> SchemaRegistry | None:
    """Returns None where the table needs none, or `notes` has got the reason."""
    starts = list(_starts(table))
    if not starts:
        return None
    urls = [_url(table, start, notes) for start in starts]
    if len(set(urls)) > 1:
        message = "must be the registry of the other one: a table has one schema registry"
        notes.wrong((table.document, f"{starts[1]}.url"), message)
    if None in urls or len(set(urls)) > 1:
        return None
    config: dict[str, Any] = {"url": urls[0]}
    for start in starts:
        config |= _login(table, start, notes)
    try:
        return SchemaRegistry(**config)
    except ValidationError as error:
        notes.refuse(error, {}, (table.document, f"{starts[0]}.url"))
        return None


def _starts(table: FlinkDeclared) -> Iterator[str]:
    for name, start in (("value.format", "value."), ("key.format", "key."), ("format", "")):
        value_format = table.text(name)
        is_confluent = value_format in (CONFLUENT, DEBEZIUM_CONFLUENT)
        if is_confluent and (name != "format" or table.connector == KAFKA):
            yield f"{start}{value_format}"


def _url(table: FlinkDeclared, start: str, notes: Notes) -> str | None:
    urls = [table.text(f"{start}.{name}") for name in _URLS if table.text(f"{start}.{name}")]
    if not urls:
        where = (table.document, f"{start}.url")
        notes.wrong(where, "is required: the schema registry, like https://registry:8081", key=True)
        return None
    return urls[0]


def _login(table: FlinkDeclared, start: str, notes: Notes) -> dict[str, Any]:
    user_info, token = f"{start}.basic-auth.user-info", f"{start}.bearer-auth.token"
    fields: dict[str, Any] = {}
    if text := table.text(user_info):
        user, colon, password = text.partition(":")
        if not colon:
            notes.wrong((table.document, user_info), "must be user:password")
            return {}
        login = field_or_reference("password", password, (table.document, user_info), notes)
        fields["basic_auth"] = {"username": user, **login}
    if text := table.text(token):
        fields |= field_or_reference("bearer_token", text, (table.document, token), notes)
    return fields
