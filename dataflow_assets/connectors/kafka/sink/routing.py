"""Where each row goes: topic, key, value and headers, or why it cannot be sent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.connectors.kafka.connection import NAME
from dataflow_assets.connectors.kafka.create_topic import KafkaRules
from dataflow_assets.connectors.kafka.options import KafkaSinkOptions
from dataflow_assets.connectors.kafka.sink.checkpoint_records import FAMILY
from dataflow_assets.connectors.kafka.sink.key_spelling import has_old_keys
from dataflow_assets.connectors.kafka.values import FRAMING, Headers, MakeRecord, Outgoing
from dataflow_assets.contracts import DELETE, OFFSET, OP, UNKNOWN, N, Rejection, Sent
from dataflow_assets.errors import PermanentError, RejectedRecord
from dataflow_assets.formats.value_schema import ValueSchema
from dataflow_assets.records.paths.path import Path
from dataflow_assets.records.placeholders import value_of
from dataflow_assets.records.record import MISSING, NotJson, Record, encode, parse, text_form

RulesOf = Callable[[str], KafkaRules | None]
Read = Callable[[Any], bytes | None]


@dataclass
class Sorted:
    """A chunk's rows, once they are judged."""

    records: list[Outgoing] = field(default_factory=list)
    refused: list[Rejection] = field(default_factory=list)


class Routing:
    """Keys and topics as the sink declares them; made once per slice, inside the task."""

    def __init__(
        self,
        sink: KafkaSinkOptions,
        rules: RulesOf,
        schema: pa.Schema,
        *,
        replays: bool = False,
    ) -> None:
        """Sends nothing yet.

        Args:
            sink: with its secrets in place.
            rules: of each topic.
            schema: of the ticket; it carries the schema of values, and how keys are written.
            replays: a record that must not be sent is rejected again, and stops no other one.
        """
        self._sink, self._rules, self._replays = sink, rules, replays
        values = ValueSchema.of(schema)
        self._record = _record_maker(sink, values, schema)
        self._encode = values.encoder() if values and self._record is None else None
        self._key = _key_reader(sink)
        self._topic = sink.topic_field.getter() if sink.topic_field else None
        self._reads = self._key is not None or self._topic is not None

    def plain(self, rows: pa.RecordBatch) -> bool:
        """Whether all rows can be sent as they are: to one topic, each surely small enough."""
        rules = self._rules(self._sink.topic)
        if self._reads or self._record or self._encode or self._sink.upsert_mode or rules is None:
            return False
        if rules.compacted and UNKNOWN in rows.schema.names:
            return False
        if rules.compacted and rows.column("key").null_count:
            return False
        headers = pc.max(pc.list_value_length(rows.column("headers"))).as_py()
        largest = sum(pc.max(pc.binary_length(rows.column(n))).as_py() or 0 for n in _BYTES)
        return not headers and largest + FRAMING <= rules.most_bytes

    def sort(self, rows: pa.RecordBatch, sent: Mapping[int, Sent]) -> Sorted:
        found = Sorted()
        for row, (value, key, headers, deleted, unknown) in enumerate(_rows(rows)):
            try:
                if unknown is not None and value is not None:
                    self._check_whole(value, unknown)
                if self._record is None:
                    record = self._address(value, key, headers, deleted=deleted)
                else:
                    record = self._record(value, deleted)
                self._check(record)
            except RejectedRecord as error:
                found.refused.append(_rejection(rows, row, error, sent))
            else:
                found.records.append(record)
        if self._sink.values is not None and (most := self._sink.values.folded_keys):
            found.records = list(last_changes(found.records, most))
        return found

    def _address(
        self, value: bytes | None, key: bytes | None, headers: Headers, *, deleted: bool
    ) -> Outgoing:
        topic = self._sink.topic
        if self._reads and value is not None:
            body = parse(value)
            key = self._key(body) if self._key else key
            topic = self._topic_of(body) if self._topic else topic
        elif self._key and key is not None and self._sink.upsert_mode:
            key = self._key_of_key(key)
        if self._sink.upsert_mode and key is None:
            raise RejectedRecord("encode", "upsertMode: the record has no key")
        value = None if deleted and self._sink.upsert_mode else value
        if self._encode is not None and value is not None:
            value = self._encode(value)
        return Outgoing(topic, value, key, headers)

    def _check_whole(self, value: bytes, unknown: str) -> None:
        """The record before it of the same key goes, and with it the values that are missing."""
        topic = self._topic_of(parse(value)) if self._topic else self._sink.topic
        rules = self._rules(topic)
        if self._sink.upsert_mode or (rules is not None and rules.compacted):
            reason = (
                f"topic {topic} keeps the last record of each key, and this one would lack values: "
                f"{unknown}; then delete the topic, and start the flow from earliest into a new "
                "one. Or leave the columns out (excludeColumns of the source)"
            )
            raise RejectedRecord("sink", reason) if self._replays else PermanentError(reason)

    def _key_of_key(self, key: bytes) -> bytes | None:
        found = parse(key)
        if isinstance(found, NotJson):
            return key
        if isinstance(found, dict):
            return self._key(found) if self._key else key
        return text_form(found).encode()

    def _topic_of(self, body: Any) -> str:
        """The record's own topic, else the default one."""
        found = self._topic(body) if self._topic else None
        if found is MISSING or found is None:
            return self._sink.topic
        name = text_form(found)
        if not NAME.fullmatch(name):
            raise RejectedRecord("encode", f"topicField: {name[:300]!r} can be no topic's name")
        if name.startswith((FAMILY, "__")):
            raise RejectedRecord("encode", f"topicField: {name} is not a topic for records")
        return name

    def _check(self, record: Outgoing) -> None:
        rules = self._rules(record.topic)
        if rules is None:
            reason = f"topic {record.topic} does not exist, or this client may not see it"
            raise RejectedRecord("sink", reason)
        if rules.compacted and record.key is None:
            raise RejectedRecord(
                "sink", f"topic {record.topic} is compacted: every record needs a key"
            )
        if record.timestamp is not None:
            _check_time(record.topic, record.timestamp, rules)
        if record.size > rules.most_bytes:
            raise RejectedRecord(
                "sink",
                f"{record.size} bytes are more than topic {record.topic} takes "
                f"(max.message.bytes {rules.most_bytes})",
            )


_BYTES = ("value", "key")


def _record_maker(
    sink: KafkaSinkOptions, values: ValueSchema | None, schema: pa.Schema
) -> MakeRecord | None:
    if sink.values is None:
        return None
    old = has_old_keys(schema)
    return sink.values.records(sink.topic, values, upserts=sink.upsert_mode, old_keys=old)


def last_changes(records: Iterable[Outgoing], most: int) -> Iterator[Outgoing]:
    """Of the changes of a key the last one, among `most` keys after the other."""
    waiting: dict[bytes | None, Outgoing] = {}
    for one in records:
        if one.key not in waiting and len(waiting) == most:
            yield from waiting.values()
            waiting.clear()
        waiting[one.key] = one
    yield from waiting.values()


def _check_time(topic: str, timestamp: int, rules: KafkaRules) -> None:
    """Raises RejectedRecord for a time that the broker would refuse, with all records beside it."""
    ahead = timestamp - time.time_ns() // 1_000_000
    for most, distance, way in ((rules.before, -ahead, "before"), (rules.after, ahead, "after")):
        if most is not None and distance > most:
            reason = (
                f"the record's time is {distance} ms {way} now, more than topic {topic} takes "
                f"(message.timestamp.{way}.max.ms {most})"
            )
            raise RejectedRecord("sink", reason)


def _key_reader(sink: KafkaSinkOptions) -> Read | None:
    if sink.key_template is not None:
        read = value_of(sink.key_template, "")
        return lambda body: _as_key(read(Record(body, {})), "keyTemplate")
    if sink.key_field is not None:
        get, name = sink.key_field.getter(), sink.key_field.text
        return lambda body: _as_key(get(body), name)
    if len(sink.conflict_key) == 1:
        get, name = sink.conflict_key[0].getter(), sink.conflict_key[0].text
        return lambda body: _as_key(get(body), name)
    return _composite(sink.conflict_key) if sink.conflict_key else None


def _composite(paths: Sequence[Path]) -> Read:
    """Several values as one JSON object, in the order of the manifest."""
    getters = [(path.text, path.getter()) for path in paths]

    def read(body: Any) -> bytes:
        found = {name: _require(get(body), name) for name, get in getters}
        return encode(found)

    return read


def _require(value: Any, name: str) -> Any:
    if value is MISSING or value is None:
        raise RejectedRecord("encode", f"no key: the body has no value at {name}")
    return value


def _as_key(value: Any, name: str) -> bytes:
    return text_form(_require(value, name)).encode("utf-8", "strict")


def _rows(rows: pa.RecordBatch) -> Iterator[tuple[Any, Any, Headers, bool, str | None]]:
    columns = [_column(rows, name) for name in ("value", "key", "headers", OP, UNKNOWN)]
    for value, key, headers, operation, unknown in zip(*columns, strict=True):
        pairs = [(one["key"], one["value"]) for one in headers or ()]
        yield value, key, pairs, operation == DELETE, unknown


def _column(rows: pa.RecordBatch, name: str) -> list[Any]:
    """The values; nothing of a system column that the rows do not have."""
    return rows.column(name).to_pylist() if name in rows.schema.names else [None] * rows.num_rows


def _rejection(
    rows: pa.RecordBatch, row: int, error: RejectedRecord, sent: Mapping[int, Sent]
) -> Rejection:
    """With the message as it was sent, so that a replay takes it through the steps again."""
    offset = rows.column(OFFSET)[row].as_py()
    n = rows.column(N)[row].as_py() if N in rows.schema.names else 0
    value, key = (rows.column(name)[row].as_py() for name in ("value", "key"))
    one = Rejection(offset, error.stage, error.reason, value, n, key)
    return one.of(sent.get(offset, Sent(value)))
