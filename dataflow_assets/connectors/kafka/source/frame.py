"""A span as a Spark DataFrame: one Spark partition per slice that holds something.

Spark reads by name: where a topic is deleted and created again between plan and read, its consumer
reads the new one at the old one's offsets and says nothing. So each task asks, by `confirm`,
whether the topic is still the planned one. Ids are never used twice, so the old id seen *after* the
last record was read proves that every record was of the old topic.

What remains: any broker may answer, from its own copy of the cluster's metadata. One that has not
heard of the deletion, while the leader already serves records of the new topic, would say what was
true before. Brokers hear of it within milliseconds; on a cluster of one there is no such broker.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dataflow_assets.connectors.kafka.options import KafkaSourceOptions
from dataflow_assets.connectors.kafka.source.large_records import is_large
from dataflow_assets.connectors.kafka.times import milliseconds
from dataflow_assets.contracts import OffsetSlice, Span
from dataflow_assets.errors import PermanentError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Measured: with the defaults each fetch is too small to keep a core busy.
_FETCH = {
    "kafka.fetch.max.bytes": "104857600",
    "kafka.max.partition.fetch.bytes": "16777216",
    "kafka.max.poll.records": "20000",
    "kafka.receive.buffer.bytes": "4194304",
    # After each poll Spark asks for the log's bounds, on the very connection whose next fetch then
    # waits at the end of the log: Kafka's 500 ms were two thirds of a small micro-batch.
    "kafka.fetch.max.wait.ms": "5",
}
# The defaults wait for minutes; a lost broker must become an error while somebody looks. Spark
# tries a task four times, so an election may take four times as long.
_TIMES = {
    "kafkaConsumer.pollTimeoutMs": "10000",
    "kafka.request.timeout.ms": "15000",
    "kafka.default.api.timeout.ms": "15000",
    "fetchOffset.numRetries": "1",
}
_NULLS = {
    "_at": "CAST(NULL AS BIGINT)",
    "body": "CAST(NULL AS BINARY)",
    "key": "CAST(NULL AS BINARY)",
    "timestamp": "CAST(NULL AS TIMESTAMP)",
    "headers": "CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>)",
}
# None at all is an empty array: a null one makes Spark's way to Python five times as dear
# (measured; for every row its Arrow writer steps through all nulls since the last value).
_HEADERS = "coalesce(headers, CAST(array() AS ARRAY<STRUCT<key: STRING, value: BINARY>>))"
_COLUMNS = {"body": "value", "key": "key", "timestamp": "timestamp", "headers": _HEADERS}


@dataclass(frozen=True)
class FrameReader:
    """Reads spans of one topic. `id` is the topic's own, `flow` names who reads."""

    source: KafkaSourceOptions
    flow: str
    id: str

    def read(
        self,
        spark: SparkSession,
        span: Span,
        lows: Mapping[str, int],
        columns: frozenset[str],
        most_bytes: int,
    ) -> DataFrame:
        """The span's records, the large ones without values.

        `lows` are the log starts. `most_bytes`: what a slice is planned for.
        """
        bounds = dict(_bounds(piece, lows) for piece in span.slices)
        filled = {p: (start, end) for p, (start, end) in bounds.items() if start < end}
        names = [name for name in _COLUMNS if name in columns or name == "body"]
        if not filled:
            return spark.range(0).selectExpr(*_with_aliases(_NULLS, ["_at", *names]))
        reader = spark.read.format("kafka").options(**self.options(filled))
        if "headers" in columns:
            reader = reader.option("includeHeaders", "true")
        longest = max(end - start for start, end in filled.values())
        large = is_large(longest, most_bytes, columns)
        expressions = _expressions(_position(span), large)
        return reader.load().selectExpr(*_with_aliases(expressions, ["_at", *names]))

    def options(self, bounds: Mapping[str, tuple[int, int]]) -> dict[str, str]:
        topic = self.source.topic
        assigned = {topic: [int(partition) for partition in bounds]}
        starts = {topic: {partition: start for partition, (start, _) in bounds.items()}}
        ends = {topic: {partition: end for partition, (_, end) in bounds.items()}}
        return {
            "kafka.bootstrap.servers": self.source.bootstrap(),
            "assign": json.dumps(assigned),
            "startingOffsets": json.dumps(starts),
            "endingOffsets": json.dumps(ends),
            "failOnDataLoss": "true",
            "kafka.group.id": self.group,
            "kafka.isolation.level": "read_committed",
            **_FETCH,
            **_TIMES,
            **self._declared_options(),
        }

    @property
    def group(self) -> str:
        """The name for every read of a flow: each new one would leave a consumer behind.

        Spark keeps consumers by group, topic name and partition, hence the hash of what else makes
        them different: the cluster, the topic's own id, the settings, ours too. A warm server may
        hold consumers of an older release, and Spark refuses other settings for the same name.
        """
        settings = {**_FETCH, **_TIMES, **self._declared_options()}
        parts = [self.source.bootstrap(), self.id, *sorted(settings.items())]
        digest = hashlib.sha256(repr(parts).encode()).hexdigest()[:10]
        return f"dataflow-assets/{self.flow}/{digest}"

    def _declared_options(self) -> dict[str, str]:
        source = self.source
        times = {
            "kafka.fetch.max.wait.ms": source.consumer_max_wait,
            "kafka.request.timeout.ms": source.net_read_timeout,
            "kafka.default.api.timeout.ms": source.net_read_timeout,
        }
        sizes = {
            "kafka.fetch.min.bytes": source.fetch_min_bytes,
            "kafka.fetch.max.bytes": source.fetch_max_bytes,
            "kafka.max.partition.fetch.bytes": source.max_partition_fetch_bytes,
        }
        options = {key: str(milliseconds(text)) for key, text in times.items() if text}
        return options | {key: str(size) for key, size in sizes.items() if size is not None}


def _bounds(piece: object, lows: Mapping[str, int]) -> tuple[str, tuple[int, int]]:
    if not isinstance(piece, OffsetSlice):
        raise PermanentError("the recorded span is not one of a Kafka source")
    return piece.partition, (max(piece.after, lows.get(piece.partition, 0)), piece.upto)


def _position(span: Span) -> str:
    """`_at`; the plan's slices are the partitions in order, a recorded span's need not be."""
    names = [piece.partition for piece in span.slices]
    if names == [str(number) for number in range(len(names))]:
        return f"offset * {len(names)} + partition"
    arms = " ".join(f"WHEN {int(name)} THEN {index}" for index, name in enumerate(names))
    return f"offset * {len(names)} + CASE partition {arms} END"


def _expressions(position: str, large: str) -> dict[str, str]:
    """A record's position and values; of a large one the position alone, negative."""
    values = {name: f"IF({large}, {_NULLS[name]}, {sql})" for name, sql in _COLUMNS.items()}
    return {"_at": f"IF({large}, -1 - ({position}), {position})", **values}


def _with_aliases(expressions: Mapping[str, str], names: list[str]) -> list[str]:
    return [f"{expressions[name]} AS `{name}`" for name in names]
