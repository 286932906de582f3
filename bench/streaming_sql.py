"""Queries with state, beside one Spark job that answers the same question over the same topic.

The query of Flink's own page over page views that only come, and one over records that replace each
other, whose keys move between groups. Both write into a compacted topic, exactly once; the bound
reads the whole topic, writes nothing and keeps nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from confluent_kafka import Consumer, Producer, TopicPartition

from bench import messages
from bench.meters import Meter, Spent
from bench.places import Places
from bench.tiny import Clock, watched
from dataflow_assets.contracts import Limit
from dataflow_assets.flow import Flow
from dataflow_assets.languages.sql.state.manifest import VIEW, position_of
from dataflow_assets.manifests.load import load
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Patience, Report, Request
from dataflow_assets.spark.session import Spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MESSAGES = 1_000_000
MOST_KEYS = 20_000_000
REGIONS, USERS, KEYS, LEVELS = 100, 100_000, 200_000, 50
SPANS = 4
"""Of all records; the first one is not counted."""
LEAST = 0.5
"""Of the bound's records a second, in all spans but the first."""
FEW, TIMES, MOST = 12, 10, 1.5
"""Records of a small span, how many of them, and the seconds that one may take in the median."""

OPTIONS = "'topic' = '{topic}', 'properties.bootstrap.servers' = '{bootstrap}'"
EARLIEST = "'scan.startup.mode' = 'earliest-offset'"
UPSERT = f"'connector' = 'upsert-kafka', {OPTIONS}, 'key.format' = 'json', 'value.format' = 'json'"
PLAIN = f"'connector' = 'kafka', {OPTIONS}, 'format' = 'json', {EARLIEST}"
VIEWS = (
    "user_id BIGINT, page_id BIGINT, viewtime TIMESTAMP, user_region STRING, "
    "WATERMARK FOR viewtime AS viewtime - INTERVAL '2' SECOND"
)
COUNTED = (
    "SELECT user_region, COUNT(*), COUNT(DISTINCT user_id) FROM s GROUP BY user_region",
    "user_region STRING, pv BIGINT, uv BIGINT, PRIMARY KEY (user_region) NOT ENFORCED",
)
CHANGES = "k BIGINT, region STRING, level INT, score BIGINT, PRIMARY KEY (k) NOT ENFORCED"
SUMMED = (
    "SELECT region, COUNT(*), SUM(score), COUNT(DISTINCT level) FROM s GROUP BY region",
    "region STRING, n BIGINT, total BIGINT, levels BIGINT, PRIMARY KEY (region) NOT ENFORCED",
)


def view(number: int) -> tuple[None, bytes]:
    """A page view, by its number."""
    return None, (
        b'{"user_id":%d,"page_id":%d,"viewtime":"2026-11-21 10:%02d:%02d",'
        b'"user_region":"region-%02d"}'
    ) % (
        number * 7_919 % USERS,
        number % 5_000,
        number // 60 % 60,
        number % 60,
        number * 104_729 // 7 % REGIONS,
    )


def change(number: int) -> tuple[bytes, bytes | None]:
    """A record that replaces the one of its key, or in one of a hundred cases deletes it."""
    key = number * 7_919 % KEYS
    name = b'{"k":%d}' % key
    if number * 31 % 100 == 0:
        return name, None
    region, level = number // 3 * 104_729 % REGIONS, number // 7 % LEVELS
    row = (key, region, level, number % 1_000)
    return name, b'{"k":%d,"region":"region-%02d","level":%d,"score":%d}' % row


Record = Callable[[int], tuple[bytes | None, bytes | None]]


@dataclass(frozen=True)
class Case:
    """One query."""

    name: str
    columns: str
    query: str
    into: str
    record: Record
    bound: Callable[[DataFrame], DataFrame]


def _counted(values: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    row = f.from_json(f.col("value").cast("string"), "user_id BIGINT, user_region STRING")
    seen = values.select(row.alias("r")).select("r.*")
    return seen.groupBy("user_region").agg(f.count("*"), f.count_distinct("user_id"))


def _summed(values: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    row = f.from_json(f.col("value").cast("string"), "region STRING, level INT, score BIGINT")
    last = values.groupBy("key").agg(f.max_by(row, f.col("offset")).alias("r")).select("r.*")
    found = last.where("region IS NOT NULL").groupBy("region")
    return found.agg(f.count("*"), f.sum("score"), f.count_distinct("level"))


CASES = (
    Case("views", VIEWS, *COUNTED, view, _counted),
    Case("changes", CHANGES, *SUMMED, change, _summed),
)


def run(places: Places, spark: Spark, count: int, rounds: int) -> dict[str, Any]:
    """By query what was measured; `passed` where it is at least half of the bound, and quick."""
    with _state(places):
        return {case.name: _measured(places, spark, case, count, rounds) for case in CASES}


def memory(places: Places, spark: Spark, most: int) -> dict[str, Any]:
    """Peaks of memory while a state grows by a million keys again and again."""
    case = Case("keys", VIEWS, *COUNTED, _other_user, _counted)
    topic, found = _topic(case), list[dict[str, Any]]()
    with _state(places):
        flow = _flow(places, case, 0)
        for at in range(0, most, MESSAGES):
            _send(places, topic, case.record, at, MESSAGES)
            with Meter(places) as meter:
                (*_, last) = drain(flow, spark.session, Request(patience=Patience(5)))
            size = {"keys": at + MESSAGES, "state_bytes": last.lag.state}
            found.append(size | {"seconds": meter.spent.seconds, "peak_bytes": meter.spent.peak})
    return {"sizes": found, "passed": found[-1]["peak_bytes"] <= 1.5 * found[0]["peak_bytes"]}


def _other_user(number: int) -> tuple[None, bytes]:
    """A page view of a user who was never seen."""
    return None, b'{"user_id":%d,"user_region":"region-%02d"}' % (number, number % REGIONS)


@contextmanager
def _state(places: Places) -> Iterator[None]:
    with patch.dict(os.environ, DATAFLOW_FILES=str(places.folder)):
        yield


def _measured(places: Places, spark: Spark, case: Case, count: int, rounds: int) -> dict[str, Any]:
    """The first round is a warm-up; small spans go on where the last one has come to."""
    _send(places, _topic(case), case.record, 0, count)
    found = [_round(places, spark, case, count, number) for number in range(rounds + 1)][1:]
    few = list(_few(places, spark, case, count, rounds))
    ratios = [one["steady"] / (count / one["bound"].seconds) for one in found]
    return {
        "rows": count,
        "bound_seconds": [one["bound"].seconds for one in found],
        "flow_seconds": [one["flow"].seconds for one in found],
        "steady_rows_per_second": [one["steady"] for one in found],
        "ratios": ratios,
        "ratio": median(ratios),
        "bound_cpu": _cpu([one["bound"] for one in found], count),
        "flow_cpu": _cpu([one["flow"] for one in found], count),
        "few": few,
        "few_median": median(few),
        "passed": median(ratios) >= LEAST and median(few) <= MOST,
    }


def _cpu(spent: Sequence[Spent], count: int) -> float:
    """Seconds of a processor for a million records."""
    return median(sum(one.cpu.values()) / count * 1e6 for one in spent)


def _round(places: Places, spark: Spark, case: Case, count: int, number: int) -> dict[str, Any]:
    flow = _flow(places, case, number, count)
    with Meter(places) as bound:
        rows = case.bound(_values(places, spark.session(), case)).collect()
    with Meter(places) as meter:
        reports = list(drain(flow, spark.session, Request(patience=Patience(5))))
    found = [tuple(json.loads(one).values()) for one in _stored(places, case, number)]
    assert sorted(found) == sorted(map(tuple, rows)), f"{case.name}: other results than Spark's"
    return {"bound": bound.spent, "flow": meter.spent, "steady": _steady(reports, count)}


def _steady(reports: Sequence[Report], count: int) -> float:
    """Records a second of all spans but the first."""
    spans = [one for one in reports if not one.last]
    first = sum(position_of(spans[0].checkpoint.positions[VIEW]).offsets.values())
    assert first < count, "one span only: measure more messages"
    return (count - first) / sum(one.seconds for one in spans[1:])


def _few(places: Places, spark: Spark, case: Case, count: int, number: int) -> Iterator[float]:
    """Seconds from the plan of a few records to their report."""
    clock, flow = Clock(), _flow(places, case, number)
    with watched(clock):
        reports = drain(flow, spark.session, Request(seconds=3600, patience=Patience(5)))
        assert isinstance(reports, Generator)
        for time in range(TIMES + 2):
            _send(places, _topic(case), case.record, count + time * FEW, FEW)
            next(reports)
            if time > 1:  # the first ones read the state
                yield perf_counter() - clock.begun
        reports.close()


def _topic(case: Case) -> str:
    return f"bench-sql-{case.name}"


def _target(case: Case, number: int) -> str:
    return f"bench-sql-{case.name}-{number}"


def _flow(places: Places, case: Case, number: int, count: int = MESSAGES) -> Flow:
    """As a user's file has it."""
    found = {"bootstrap": places.bootstrap}
    kind = UPSERT if "PRIMARY KEY" in case.columns else PLAIN
    text = (
        f"CREATE TABLE s ({case.columns}) WITH ({kind.format(topic=_topic(case), **found)});\n"
        f"CREATE TABLE o ({case.into}) WITH "
        f"({UPSERT.format(topic=_target(case, number), **found)});\n"
        f"INSERT INTO o {case.query};\n"
    )
    file = places.folder / f"{case.name}-{number}" / "query.sql"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    (flow,) = load(file).flows
    policies = replace(flow.policies, limit=Limit(count // SPANS // messages.PARTITIONS))
    return replace(flow, namespace=f"bench-{case.name}-{number}", policies=policies)


def _send(places: Places, topic: str, record: Record, first: int, count: int) -> None:
    """The next records, by their keys as Java does; the first ones make the topic."""
    if first == 0:
        messages.create(places.bootstrap, topic)
    settings = {"acks": "all", "linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
    producer = Producer(
        {"bootstrap.servers": places.bootstrap, "partitioner": "murmur2_random", **settings}
    )
    for number in range(first, first + count):
        key, value = record(number)
        if key is None:
            producer.produce(topic, value, partition=number % messages.PARTITIONS)
        else:
            producer.produce(topic, value, key)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0


def _values(places: Places, session: SparkSession, case: Case) -> DataFrame:
    """All records of the topic, as Spark's own reader has them."""
    reader = session.read.format("kafka").option("kafka.bootstrap.servers", places.bootstrap)
    return reader.option("subscribe", _topic(case)).load()


def _stored(places: Places, case: Case, number: int) -> list[bytes]:
    """The rows of the table that the target is."""
    settings = {"group.id": "bench", "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": places.bootstrap, **settings})
    target, found = _target(case, number), dict[bytes | None, bytes | None]()
    for partition in consumer.list_topics(target, 20).topics[target].partitions:
        consumer.assign([TopicPartition(target, partition, 0)])
        while (message := consumer.poll(20)) is not None and message.error() is None:
            found[message.key()] = message.value()
    consumer.close()
    return [value for value in found.values() if value is not None]
