"""A sink connector's file -> its flows, one for each topic, or everything that is wrong with it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path as File
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from dataflow_assets.connectors.kafka import KafkaSink, KafkaSource
from dataflow_assets.contracts import Rejects
from dataflow_assets.flow import Flow, Policies
from dataflow_assets.languages.common import connect_consumer as consumer
from dataflow_assets.languages.common.connect_keys import ADDITIONS
from dataflow_assets.languages.common.connect_values import ConnectValues
from dataflow_assets.languages.common.documents import Document
from dataflow_assets.languages.common.key_tables import entry
from dataflow_assets.languages.common.notes import Notes, Where
from dataflow_assets.languages.common.references import ALLOWED, mentions
from dataflow_assets.languages.connect.ends import JdbcTopic, LakeTopic
from dataflow_assets.languages.connect.reader.converters import (
    Converter,
    converter,
    key_fields,
    value_fields,
    value_steps,
)
from dataflow_assets.languages.connect.reader.iceberg import IcebergTables
from dataflow_assets.languages.connect.reader.jdbc import JdbcSink
from dataflow_assets.languages.connect.reader.keys import (
    COMMON,
    CONFLUENT,
    CONNECTORS,
    DEBEZIUM,
    REFERABLE,
    TABULAR,
)
from dataflow_assets.languages.connect.reader.transforms import Transformed, apply_transforms

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,198}[A-Za-z0-9])?")
_TOPIC = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
_ELSEWHERE = (consumer.OVERRIDE, "value.converter.", "key.converter.")


@dataclass(frozen=True)
class _ConnectPlan:
    """The part of a file that is the same for each of its topics."""

    values: ConnectValues
    value: Converter | None
    sink: JdbcSink | IcebergTables
    policies: Policies
    source: Mapping[str, Any]
    places: Mapping[str, Where]


def flows(document: Document, worker: Document | None, notes: Notes) -> list[Flow]:
    """The flows of a file, of which it is known that its class is one of ours.

    Called whenever files have changed, by the language.

    Args:
        document: the connector's keys with their texts.
        worker: the Connect worker's file beside it, where there is one.
        notes: gets findings and hints; with findings there is no flow.
    """
    values = ConnectValues(_known_keys(document, notes), notes)
    name = values.matching("name", _NAME, "letters, digits, `.`, `_` and `-`, at most 200")
    topics = dict.fromkeys(values.list_of("topics", "the topics to read, separated by commas"))
    for topic in topics:
        if not _TOPIC.fullmatch(topic):
            notes.wrong((document, "topics"), "a topic has letters, digits, `.`, `_` and `-`")
    plan = _plan(values, worker, name)
    built = [_flow(plan, name, topic) for topic in topics] if plan else []
    return [] if notes.findings else [flow for flow in built if flow is not None]


def _known_keys(document: Document, notes: Notes) -> Document:
    """Judges each key, and leaves out those that this connector does not have."""
    own = CONNECTORS[document.value["connector.class"].strip()]
    own_values: dict[str, str] = {}
    for key, text in document.value.items():
        where, found = (document, key), entry(key, COMMON, own, ADDITIONS)
        if not key.startswith(consumer.OVERRIDE):
            consumer.judge(key, where, notes, COMMON, own, ADDITIONS)
        if found is not None and found.verdict == "note" and text.strip().lower() != found.default:
            notes.note(where, found.says)
        if mentions(text) and key not in REFERABLE and not key.startswith(_ELSEWHERE):
            notes.wrong(where, f"only {', '.join(REFERABLE)} may be {ALLOWED}")
        if found is not None or key.startswith(consumer.OVERRIDE):
            own_values[key] = text
    return replace(document, value=own_values)


def _plan(values: ConnectValues, worker: Document | None, name: str) -> _ConnectPlan | None:
    document, notes = values.document, values.notes
    value, key = (converter(end, document, worker, notes) for end in ("value", "key"))
    kind = values.text("connector.class")
    jdbc = kind in (DEBEZIUM, CONFLUENT)
    sink = JdbcSink.read(values, key) if jdbc else IcebergTables.read(values)
    reached = consumer.settings(document, worker or document, notes)
    source = value_fields(value, document, notes)
    if isinstance(sink, JdbcSink) and sink.mode == "record_key":
        source |= key_fields(key, value, notes, sink.where("mode"))
    if reached is None:
        return None
    group = {"consumer_group": values.text("iceberg.connect.group-id") or f"connect-{name}"}
    policies, options = _policies(values, reached.values)
    fields = {**group, **reached.values, **source, **options}
    if not jdbc:
        fields |= {
            "members_group": fields["consumer_group"],
            "control_topic": values.text("iceberg.control.topic") or "control-iceberg",
        }
        if kind == TABULAR:  # whose offsets are those of a group of its own
            own = values.text("iceberg.control.group-id")
            fields["consumer_group"] = own or f"cg-control-{name}"
    return _ConnectPlan(values, value, sink, policies, fields, reached.places)


def _flow(plan: _ConnectPlan, name: str, topic: str) -> Flow | None:
    """The flow of one topic; None where something is wrong with it."""
    values, notes = plan.values, plan.values.notes
    document = values.document
    transformed = apply_transforms(
        document, Transformed(topic, tuple(value_steps(plan.value))), notes
    )
    try:
        steps = (*transformed.steps, *plan.sink.steps(transformed))
    except ValueError as error:
        notes.wrong((document, "connector.class"), str(error))
        return None
    branches = plan.sink.branches(transformed.topic)
    source = _source(plan, topic, plan.sink.tombstones if transformed.tombstones else "skip")
    if source is None or not branches:
        return None
    return Flow(
        namespace="default",
        name=f"{name}.{topic}",
        source=source,
        branches=branches,
        policies=plan.policies,
        transformations=steps,
        file=File(document.file),
        line=document.places[()].line,
        hash=_hash(plan, topic),
        suspended=values.flag("dataflow.suspended"),
        language="connect",
    )


def _source(plan: _ConnectPlan, topic: str, tombstones: str) -> KafkaSource | None:
    notes, document = plan.values.notes, plan.values.document
    topic_class = LakeTopic if isinstance(plan.sink, IcebergTables) else JdbcTopic
    where = (document, "topics")
    try:
        return topic_class(**{**plan.source, "topic": topic, "tombstones": tombstones})
    except ValidationError as error:
        places: dict[str, Where] = {**plan.places, "topic": where}
        if plan.value is not None and "schema.registry.url" in plan.value.settings:
            places["schema_registry"] = plan.value.settings["schema.registry.url"][1]
        notes.refuse(error, places, plan.places.get("brokers", where))
    return None


def _policies(values: ConnectValues, reached: Mapping[str, Any]) -> tuple[Policies, dict[str, Any]]:
    """Reads what happens to records and how fresh rows are, and the options of the source."""
    options = {
        "on_data_loss": values.choice("dataflow.onDataLoss", ("fail", "continue")),
        "on_topic_recreated": values.choice("dataflow.onTopicRecreated", ("fail", "restart")),
    }
    percent = values.number("dataflow.maxRejectedPercent", 0, 100)
    policies = Policies(
        freshness_seconds=values.number("dataflow.freshness", 1, 3600) or 10.0,
        max_rejected_percent=10.0 if percent is None else percent,
        on_topic_recreated=options["on_topic_recreated"] or "fail",
        rejects=_rejects(values, reached),
    )
    return policies, {name: text for name, text in options.items() if text}


def _rejects(values: ConnectValues, reached: Mapping[str, Any]) -> Rejects:
    tolerated = values.choice("errors.tolerance", ("none", "all")) == "all"
    way = values.choice("dataflow.onRejected", ("fail", "table", "skip"))
    key = "errors.deadletterqueue.topic.name"
    topic = values.text(key)
    if topic and (way or not tolerated):
        reason = "dataflow.onRejected" if way else "errors.tolerance=none"
        values.notes.note((values.document, key), f"has no effect with {reason}")
    elif topic:
        replicas = values.number("errors.deadletterqueue.topic.replication.factor", 1, None)
        own = {"topic": topic, "auto_create_topic": True, "topic_replicas": int(replicas or 3)}
        shared = {name: one for name, one in reached.items() if name in KafkaSink.model_fields}
        try:
            return Rejects("errors", KafkaSink(**{**shared, **own}))
        except ValidationError as error:
            values.notes.refuse(error, {}, (values.document, key))
    return Rejects(way or ("table" if tolerated else "fail"))  # type: ignore[arg-type]


def _hash(plan: _ConnectPlan, topic: str) -> str:
    source = to_jsonable_python(plan.source, by_alias=True)
    content = [sorted(plan.values.document.value.items()), topic, source]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
