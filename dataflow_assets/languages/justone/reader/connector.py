"""A connector's file -> its flows, one for each topic, or everything that is wrong with it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path as File
from typing import Any
from urllib.parse import quote

from pydantic import SecretStr, ValidationError
from pydantic_core import to_jsonable_python

from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.contracts import Rejects
from dataflow_assets.errors import DataflowError
from dataflow_assets.flow import Branch, Flow, Policies
from dataflow_assets.languages.common import connect_consumer as consumer
from dataflow_assets.languages.common.connect_keys import ADDITIONS
from dataflow_assets.languages.common.connect_values import ConnectValues
from dataflow_assets.languages.common.documents import Document
from dataflow_assets.languages.common.key_tables import entry, placeholder
from dataflow_assets.languages.common.notes import Notes, Where
from dataflow_assets.languages.common.references import ALLOWED, mentions
from dataflow_assets.languages.justone.messages.message_format import ParsePathsFormat
from dataflow_assets.languages.justone.messages.parse_path import ParsePath
from dataflow_assets.languages.justone.postgresql.sink import JustOneSink
from dataflow_assets.languages.justone.reader.addresses import is_address, split
from dataflow_assets.languages.justone.reader.keys import CLASS, CLASSES, CONNECTOR, STRING

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,198}[A-Za-z0-9])?")
_TOPIC = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
_REFERABLE = ("db.password",)
_SERVED = "counts as synchronized: every record is stored exactly once"
_DELIVERIES = ("fastest", "guaranteed", "synchronized")
_SPACE = "ends with a space, which is part of the last key: remove it, unless the key has it"


def flows(document: Document, worker: Document | None, notes: Notes) -> list[Flow]:
    """The flows of a file. `worker`: the Connect worker's file beside it, where there is one.

    `notes` gets findings and hints; with findings there is no flow.
    """
    addressed = split(document, notes)
    values = Values(addressed, notes)
    _check_keys(document, notes)
    _check_converter(document, worker, notes)
    name = values.matching("name", _NAME, "letters, digits, `.`, `_` and `-`, at most 200")
    listed = values.list_of("topics", "the topics to read, separated by commas")
    topics = tuple(dict.fromkeys(listed))  # Connect reads one that is listed twice once
    for topic in topics:
        if not _TOPIC.fullmatch(topic):
            notes.wrong((document, "topics"), "a topic has letters, digits, `.`, `_` and `-`")
    sink = _sink(values)
    paths = values.paths(len(values.list_of("db.columns", "the columns that are written")))
    policies, options = _policies(values)
    suspended = values.flag("dataflow.suspended")
    reached = consumer.settings(document, worker, notes) if worker else None
    if notes.findings or sink is None or reached is None:
        return []
    group = {"consumer_group": f"connect-{name}"}
    merged = replace(reached, values={**group, **reached.values, **options})
    form = ParsePathsFormat(sink.names, tuple(paths))
    return [
        Flow(
            namespace="default",
            name=f"{name}.{source.topic}",
            source=source.reading(form),
            branches=(Branch(sink, place=("db.table",)),),
            policies=policies,
            file=File(document.file),
            line=document.places[()].line,
            hash=_hash(values, source.topic, reached),
            suspended=suspended,
            language="justone",
        )
        for source in _sources(values, topics, merged)
    ]


def _check_keys(document: Document, notes: Notes) -> None:
    for key, text in document.value.items():
        where = (document, key)
        if not (key.startswith(consumer.OVERRIDE) or is_address(key, text)):
            consumer.judge(key, where, notes, CONNECTOR, ADDITIONS)
        if mentions(text) and key not in _REFERABLE and key.startswith("db."):
            notes.wrong(where, f"only db.password may be {ALLOWED}")
    kind = document.value.get("connector.class")
    if kind is None or kind.strip() not in CLASSES:
        notes.wrong((document, "connector.class"), f"must be {CLASS}", key=kind is None)


def _check_converter(document: Document, worker: Document | None, notes: Notes) -> None:
    """Any other converter hands over something whose text is not the message."""
    for one in (document, worker):
        converter = one.value.get("value.converter") if one else None
        if one and converter is not None:
            if converter.strip() != STRING:
                notes.wrong(
                    (one, "value.converter"),
                    f"must be {STRING}: the connector parses the text of messages",
                )
            return


def _sink(values: Values) -> JustOneSink | None:
    notes, document = values.notes, values.document
    before = len(notes.findings)
    columns = values.list_of("db.columns", "the columns that are written")
    if len(set(columns)) < len(columns):
        notes.wrong((document, "db.columns"), "names a column twice")
    if any(" " in column for column in columns):
        message = "has a name with a space in it: names are separated by commas"
        notes.note((document, "db.columns"), message)
    parts = {
        key: values.require(key, what)
        for key, what in (
            ("db.database", "the database"),
            ("db.username", "the user"),
            ("db.schema", "the table's schema, like public"),
            ("db.table", "the table that gets the rows"),
        )
    }
    if parts["db.table"].startswith(f"{parts['db.schema']}."):
        message = "is a table whose name begins with the schema: write the schema in db.schema only"
        notes.note((document, "db.table"), message)
    host = values.text("db.host") or "localhost"
    if unwritten := placeholder(host):
        notes.wrong((document, "db.host"), f"{unwritten}: write host or host:port")
        return None
    if mentions(host):  # which has its finding
        return None
    if re.search(r"[/?@\s]", host):
        notes.wrong((document, "db.host"), "must be host or host:port, without parameters")
    if "?" in parts["db.database"]:
        notes.wrong((document, "db.database"), "parameters of the JDBC address are not supported")
    password = values.secret("db.password", "password")
    if len(notes.findings) > before:
        return None
    address = f"postgresql://{_url(parts['db.username'])}@{host}/{_url(parts['db.database'])}"
    table = ".".join(_quote(parts[key]) for key in ("db.schema", "db.table"))
    fields = {"connection_string": SecretStr(address), "table": table, "names": tuple(columns)}
    return _make_sink(fields | password, values)


def _make_sink(given: Mapping[str, Any], values: Values) -> JustOneSink | None:
    where = (values.document, "db.host")
    try:
        sink = JustOneSink(**given)
        sink.address()
    except ValidationError as error:
        values.notes.refuse(error, {"table": (values.document, "db.table")}, where)
    except (DataflowError, ValueError):
        values.notes.wrong(where, "must be host or host:port, several separated by commas")
    else:
        return sink
    return None


def _url(text: str) -> str:
    return quote(text, safe="")


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _policies(values: Values) -> tuple[Policies, dict[str, Any]]:
    values.number("tasks.max", 1, None)
    values.number("db.buffer.size", 0, None)
    values.note("tasks.max", unless="1")
    values.note("db.buffer.size")
    values.note("db.port")
    _note_delivery(values)
    tolerated = values.choice("errors.tolerance", ("none", "all")) == "all"
    way = values.choice("dataflow.onRejected", ("fail", "table", "skip"))
    options = {
        "on_data_loss": values.choice("dataflow.onDataLoss", ("fail", "continue")),
        "on_topic_recreated": values.choice("dataflow.onTopicRecreated", ("fail", "restart")),
    }
    policies = Policies(
        freshness_seconds=values.number("dataflow.freshness", 1, 3600) or 10.0,
        max_rejected_percent=_percent(values),
        on_topic_recreated=options["on_topic_recreated"] or "fail",
        rejects=Rejects(way or ("table" if tolerated else "fail")),  # type: ignore[arg-type]
    )
    return policies, {name: text for name, text in options.items() if text}


def _note_delivery(values: Values) -> None:
    word = (values.text("db.delivery") or "synchronized").lower()
    if word != "synchronized":
        unknown = "" if word in _DELIVERIES else f"is none of {', '.join(_DELIVERIES)}, and "
        values.notes.note((values.document, "db.delivery"), unknown + _SERVED)


def _percent(values: Values) -> float:
    percent = values.number("dataflow.maxRejectedPercent", 0, 100)
    return 10.0 if percent is None else percent


def _sources(
    values: Values, topics: Sequence[str], reached: consumer.Settings
) -> list[KafkaSource]:
    """One for each topic; none where the source's own model says that something is wrong."""
    where = (values.document, "topics")
    try:
        return [KafkaSource(**reached.values, topic=topic) for topic in topics]
    except ValidationError as error:
        places: dict[str, Where] = {**reached.places, "topic": where}
        values.notes.refuse(error, places, reached.places.get("brokers", where))
    return []


def _hash(values: Values, topic: str, reached: consumer.Settings) -> str:
    settings = to_jsonable_python(reached.values, by_alias=True)
    content = [sorted(values.document.value.items()), topic, settings]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Values(ConnectValues):
    """Reads values, parse paths too; what is wrong with them is in `notes` afterwards."""

    def paths(self, columns: int) -> tuple[str, ...]:
        """The parse paths, as many as there are columns."""
        key, what = "db.json.parse", "a parse path for each column, like /@id"
        where = (self.document, key)
        if not self.require(key, what):
            return ()
        texts = self.document.value[key].rstrip(",").split(",")
        if texts[0].startswith("$."):
            self.notes.wrong(where, "JSONPath is not read: $.a.b[0] is written /@a/@b/#0")
            return ()
        for number, text in enumerate(texts, 1):
            try:
                ParsePath.parse(text)
            except ValueError as error:
                self.notes.wrong(where, f"path {number} {error}")
            if text != text.rstrip():
                self.notes.note(where, f"path {number} {_SPACE}")
        if columns and len(texts) != columns:
            paths = f"{len(texts)} path{'' if len(texts) == 1 else 's'}"
            message = f"has {paths}, and db.columns {columns}: one path for each column"
            self.notes.wrong(where, message)
        return tuple(texts)

    def note(self, key: str, unless: str = "") -> None:
        """Notes what happens instead of what a key says, unless it says what happens anyway."""
        key_entry = entry(key, CONNECTOR)
        if key_entry is not None and self.text(key) not in {"", unless}:
            self.notes.note((self.document, key), key_entry.says)
