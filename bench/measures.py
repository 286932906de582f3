"""One round: every bound, and every flow right beside its own bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import devservers
from bench import (
    avro,
    bounds,
    flows,
    followed,
    lake,
    merges,
    messages,
    polled,
    tables,
    topics,
)
from bench.meters import Meter, Spent
from bench.places import Places
from dataflow_assets.contracts import Sink
from dataflow_assets.flow import Flow
from dataflow_assets.records.chain import Transformation
from dataflow_assets.spark.session import Spark
from devservers.nessie import missing


@dataclass(frozen=True)
class Ready:
    """What has been prepared: the session, topics with so many messages, their rows as CSV."""

    places: Places
    spark: Spark
    counts: dict[str, int]
    """By name, `all` and `keys`: how many messages the topic of that name holds."""
    rows: dict[str, list[Path]]

    def topic(self, name: str) -> str:
        """The topic's own name."""
        return f"bench-{name}-{self.counts[name]}"


@dataclass(frozen=True)
class Measure:
    """Something timed, `step`, between what makes room for it and what proves its result."""

    name: str
    step: Callable[[], object]
    topic: str = "all"
    before: Callable[[], object] = field(default=lambda: None)
    after: Callable[[], object] = field(default=lambda: None)


def measures(ready: Ready) -> list[Measure]:
    """In the order of a round."""
    return [
        Measure("consume", lambda: _consume(ready)),
        Measure("spark-count", lambda: _spark_count(ready)),
        *_appends(ready, "binary"),
        *_encrypted(ready),
        _steps(ready),
        *_avro(ready),
        *_appends(ready, "numeric"),
        *_appends(ready, "text"),
        _iceberg(ready),
        *_nessie(ready),
        *_lake(ready),
        *_clickhouse(ready),
        *_topics(ready),
        *_table(ready),
        *_log(ready),
        *_upserts(ready),
    ]


def run(ready: Ready, measure: Measure) -> Spent:
    """Once."""
    measure.before()
    with Meter(ready.places) as meter:
        measure.step()
    measure.after()
    return meter.spent


def _consume(ready: Ready) -> None:
    bounds.consume(ready.places, ready.topic("all"), ready.counts["all"])


def _spark_count(ready: Ready) -> None:
    session = ready.spark.session()
    assert bounds.spark_count(ready.places, session, ready.topic("all")) == ready.counts["all"]


def _appends(ready: Ready, kind: tables.Kind) -> Iterator[Measure]:
    places, count, files = ready.places, ready.counts["all"], ready.rows["all"]
    raw, table = f"bench_raw_{kind}", f"bench_{kind}"
    yield Measure(
        f"copy-{kind}",
        lambda: bounds.copy_all(places, raw, files),
        before=lambda: tables.fresh(places, raw, kind),
        after=lambda: _checked(places, raw, count),
    )
    yield Measure(
        f"flow-{kind}",
        lambda: _drain(ready, "all", kind, flows.append(places, table)),
        before=lambda: tables.fresh(places, table, kind),
        after=lambda: _checked(places, table, count),
    )


def _encrypted(ready: Ready) -> Iterator[Measure]:
    """The same rows as `flow-binary` over mTLS, right after it; only on a broker of our own."""
    places, count, table = ready.places, ready.counts["all"], "bench_mtls"
    kafka = places.kafka
    if isinstance(kafka, devservers.SecureKafka):
        source = flows.encrypted(kafka, ready.topic("all"))
        yield Measure(
            "flow-mtls",
            lambda: _drained(ready, "all", flows.read(source, "mtls", flows.append(places, table))),
            before=lambda: tables.fresh(places, table, "binary"),
            after=lambda: _checked(places, table, count),
        )


def _avro(ready: Ready) -> Iterator[Measure]:
    """The same rows as Avro messages; the flow comes first, before Spark's idle workers end."""
    places, count, table = ready.places, ready.counts["all"], "bench_avro"
    flow = flows.read(avro.source(places, count), "avro", flows.append(places, table))

    def before() -> None:
        avro.filled(places, count)
        tables.fresh(places, table, "binary")

    yield Measure(
        "flow-avro",
        lambda: _drained(ready, "all", flow),
        before=before,
        after=lambda: _checked(places, table, count),
    )
    yield Measure(
        "decode-avro",
        lambda: avro.decode_all(places, count),
        before=lambda: avro.filled(places, count),
    )


def _steps(ready: Ready) -> Measure:
    """The same rows as `flow-binary`, but for a key more in `address`; right after it."""
    places, count, table = ready.places, ready.counts["all"], "bench_steps"
    return Measure(
        "flow-steps",
        lambda: _drain(ready, "all", "steps", flows.append(places, table), flows.chain()),
        before=lambda: tables.fresh(places, table, "binary"),
        after=lambda: _checked(places, table, count),
    )


def _upserts(ready: Ready) -> Iterator[Measure]:
    """New keys and then the same again: two pairs on the same two tables."""
    places, count, files = ready.places, ready.counts["keys"], ready.rows["keys"]
    raw, table = "bench_raw_upsert", "bench_upsert"
    sink = flows.upsert(places, table)
    makes = {"new": tables.fresh, "again": lambda places, *_: tables.settle(places)}
    for part, make in makes.items():
        yield Measure(
            f"plain-{part}",
            lambda: bounds.upsert_all(places, raw, files),
            "keys",
            partial(make, places, raw, "upsert"),
            lambda: tables.check(places, raw, count),
        )
        yield Measure(
            f"flow-{part}",
            partial(_drain, ready, "keys", "upsert", sink),
            "keys",
            partial(make, places, table, "upsert"),
            lambda: tables.check(places, table, count),
        )


def _iceberg(ready: Ready) -> Measure:
    places, count = ready.places, ready.counts["all"]
    return Measure(
        "flow-iceberg",
        lambda: _drain(ready, "all", "iceberg", flows.iceberg(places, "rows")),
        before=lambda: flows.forget_iceberg(places.seaweedfs.catalog_properties(), "rows"),
        after=lambda: flows.check_iceberg(places.seaweedfs.catalog_properties(), "rows", count),
    )


def _nessie(ready: Ready) -> Iterator[Measure]:
    """The same into a branch of Nessie, whose server is started for it where there is Java 21."""
    places, count = ready.places, ready.counts["all"]
    if not missing():
        yield Measure(
            "flow-nessie",
            lambda: _drain(ready, "all", "nessie", flows.nessie(places, "rows")),
            before=lambda: flows.forget_iceberg(places.nessie.catalog_properties(), "rows"),
            after=lambda: flows.check_iceberg(places.nessie.catalog_properties(), "rows", count),
        )


def _lake(ready: Ready) -> Iterator[Measure]:
    """The same rows out of an Iceberg table."""
    places, count, files = ready.places, ready.counts["all"], ready.rows["all"]

    def before(table: str) -> None:
        lake.filled(places, files, count)
        tables.fresh(places, table, "binary")

    yield Measure(
        "copy-lake",
        lambda: lake.copy_all(places, "bench_raw_lake"),
        before=lambda: before("bench_raw_lake"),
        after=lambda: _checked(places, "bench_raw_lake", count),
    )
    flow = flows.read(lake.source(places), "lake", flows.append(places, "bench_lake"))
    yield Measure(
        "flow-lake",
        lambda: _drained(ready, "all", flow),
        before=lambda: before("bench_lake"),
        after=lambda: _checked(places, "bench_lake", count),
    )


def _clickhouse(ready: Ready) -> Iterator[Measure]:
    """Ready batches, the topic by plain clients, the flow; tables of the same columns."""
    places, count, raw, table = ready.places, ready.counts["all"], "bench_raw", "bench_rows"
    files = merges.ready(ready.rows["all"])
    yield Measure(
        "insert-arrow",
        lambda: merges.insert_all(places, raw, files),
        before=lambda: merges.fresh(places, raw),
        after=lambda: merges.check(places, raw, count),
    )
    yield Measure(
        "load-clickhouse",
        lambda: merges.load_all(places, ready.topic("all"), raw),
        before=lambda: merges.fresh(places, raw),
        after=lambda: merges.check(places, raw, count),
    )
    yield Measure(
        "flow-clickhouse",
        lambda: _drain(ready, "all", "clickhouse", merges.sink(places, table)),
        before=lambda: merges.fresh(places, table),
        after=lambda: merges.check(places, table, count),
    )


def _topics(ready: Ready) -> Iterator[Measure]:
    """The same messages into another topic."""
    places, count, source = ready.places, ready.counts["all"], ready.topic("all")

    def after(topic: str) -> None:
        topics.check(places, topic, count)
        messages.drop(places.bootstrap, topic)

    for name, step in (
        ("copy-topic", lambda topic: topics.copy_all(places, source, topic)),
        ("flow-topic", lambda topic: _drain(ready, "all", "topic", topics.sink(places, topic))),
    ):
        topic = f"bench-{name}"
        yield Measure(
            name,
            partial(step, topic),
            before=partial(messages.create, places.bootstrap, topic),
            after=partial(after, topic),
        )


def _table(ready: Ready) -> Iterator[Measure]:
    """The same rows out of a PostgreSQL table."""
    places, count, files = ready.places, ready.counts["all"], ready.rows["all"]

    def before(table: str) -> None:
        polled.filled(places, files, count)
        tables.fresh(places, table, "binary")

    yield Measure(
        "copy-table",
        lambda: polled.copy_all(places, "bench_raw_table"),
        before=lambda: before("bench_raw_table"),
        after=lambda: _checked(places, "bench_raw_table", count),
    )
    flow = flows.read(polled.source(places), "table", flows.append(places, "bench_table"))
    yield Measure(
        "flow-table",
        lambda: _drained(ready, "all", flow),
        before=lambda: before("bench_table"),
        after=lambda: _checked(places, "bench_table", count),
    )


def _log(ready: Ready) -> Iterator[Measure]:
    """The same rows out of the log of a PostgreSQL table."""
    places, count, files = ready.places, ready.counts["all"], ready.rows["all"]

    def before() -> None:
        followed.filled(places, files)
        tables.fresh(places, "bench_cdc", "binary")

    def after() -> None:
        followed.forget(places)
        tables.drop(places, followed.TABLE)

    yield Measure("read-cdc", lambda: followed.read_all(places, count), before=before, after=after)
    flow = flows.read(followed.source(places), "cdc", flows.append(places, "bench_cdc"))

    def checked() -> None:
        after()
        _checked(places, "bench_cdc", count)

    yield Measure("flow-cdc", lambda: _drained(ready, "all", flow), before=before, after=checked)


def _drain(
    ready: Ready, topic: str, name: str, sink: Sink, steps: tuple[Transformation, ...] = ()
) -> None:
    _drained(ready, topic, flows.flow(ready.places, ready.topic(topic), name, sink, steps))


def _drained(ready: Ready, topic: str, flow: Flow) -> None:
    totals = flows.run(flow, ready.spark)
    assert (totals.rows, totals.rejected) == (ready.counts[topic], 0), str(totals)


def _checked(places: Places, table: str, count: int) -> None:
    tables.check(places, table, count)
    tables.drop(places, table)
