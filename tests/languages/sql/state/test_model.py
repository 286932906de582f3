"""500 random queries and logs, without servers: the product's result is the model's."""

from __future__ import annotations

import json
import math
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, ClassVar, cast
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.contracts import MESSAGES, OffsetSlice, Source, Span, system_name
from dataflow_assets.contracts.reading import Asked
from dataflow_assets.languages.sql.engine.function import Environment
from dataflow_assets.languages.sql.state import reading
from dataflow_assets.languages.sql.state.compute import Computation, folder_of
from dataflow_assets.languages.sql.state.driver import Cache, Limits, QueryDriver
from dataflow_assets.languages.sql.state.manifest import Manifest
from dataflow_assets.languages.sql.state.output import batches
from dataflow_assets.languages.sql.state.reading import ViewReader
from dataflow_assets.languages.sql.state.source import ViewSource
from dataflow_assets.languages.sql.state.tasks import StatePlace
from dataflow_assets.languages.sql.state.united import name_partition, of_table
from dataflow_assets.manifests.load import load
from dataflow_assets.testing import choose
from tests.in_process import Session
from tests.languages.sql.state import model
from tests.languages.sql.state.model import Query, Row
from tests.languages.sql.state.model_top import AT, Top, tops

Message = tuple[bytes | None, bytes | None]
BAD = b"{bad"
BATCH = 7
"""Messages of one batch."""
LOG: dict[str, list[Message]] = {}
"""By the partition its messages."""


class LogSource(KafkaSource):
    """Reads LOG."""

    type: ClassVar[str] = "log"

    @classmethod
    def messages_together(
        cls, asked: Sequence[Asked]
    ) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
        for number, one in enumerate(asked):
            yield number, _batches(one)


def log_source(read: Source) -> LogSource:
    assert isinstance(read, KafkaSource)
    assert read.values is not None
    return LogSource.model_construct(**dict(read)).reading(read.values, read.begin, read.end)


def _in_log(source: LogSource, partition: str) -> str:
    """Of several tables the second one is called w."""
    several = any("/" in name for name in LOG)
    return name_partition(int(source.topic == "w"), partition) if several else partition


def _batches(asked: Asked) -> Iterator[pa.RecordBatch]:
    piece = asked.piece
    assert isinstance(asked.source, LogSource)
    log = LOG[_in_log(asked.source, piece.partition)]
    for first in range(piece.after, piece.upto, BATCH):
        offsets = range(first, min(first + BATCH, piece.upto))
        keys, values = zip(*(log[one] for one in offsets), strict=True)
        times = [datetime(2026, 1, 1, tzinfo=UTC)] * len(offsets)
        at = [offset * asked.slices + asked.index for offset in offsets]
        columns: dict[str, Any] = {"_at": pa.array(at)}
        columns["body"] = pa.array(values, MESSAGES.field("value").type)
        columns |= {"key": pa.array(keys, pa.binary())} if "key" in asked.columns else {}
        if "timestamp" in asked.columns:
            columns["timestamp"] = pa.array(times, pa.timestamp("ms", "UTC"))
        yield pa.RecordBatch.from_pydict(columns)


@dataclass
class Sink:
    """A table of the target's rows by their keys."""

    keys: Sequence[str]
    rows: dict[str, Row] = field(default_factory=dict)
    refused: list[tuple[int, int]] = field(default_factory=list)

    def take(self, parts: Sequence[pa.RecordBatch]) -> None:
        """Each key once; nothing that is there already, and no delete of what is not."""
        seen: set[str] = set()
        for row in (row for part in parts for row in part.to_pylist()):
            if row[system_name("operation")] == "refused":
                if row[system_name("offset")] is not None:
                    self.refused.append((row[system_name("partition")], row[system_name("offset")]))
                continue
            body = json.loads(row["body"], parse_float=Decimal)
            key = json.dumps({name: str(body[name]) for name in self.keys})
            assert key not in seen
            seen.add(key)
            if row[system_name("operation")] == "delete":
                del self.rows[key]
            else:
                assert self.rows.get(key) != body
                self.rows[key] = body


def _json(row: Row) -> bytes:
    def text(value: Any) -> Any:
        if isinstance(value, Decimal):
            return float(value)
        if isinstance(value, datetime):
            return value.strftime("%Y-%m-%d %H:%M:%S.%f")
        return _wanted(value)

    return json.dumps({name: text(value) for name, value in row.items()}).encode()


def _value(given: Any, kind: str) -> Any:
    """A value of the target's JSON."""
    if given is None:
        return None
    if kind == "DOUBLE":
        return _wanted(float(given))
    if kind.startswith("TIMESTAMP"):
        return datetime.fromisoformat(given)
    return Decimal(given) if kind.startswith("DECIMAL") else given


def _wanted(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def changes(random: Random, *, keyed: bool) -> list[tuple[int, Any]]:
    """Rows with keys (None: deleted), and bytes that cannot be read."""
    return [
        (random.randint(0, 5), _change(random, keyed=keyed)) for _ in range(random.randint(5, 25))
    ]


def _change(random: Random, *, keyed: bool) -> Any:
    if random.random() < 0.08:
        return BAD
    return None if keyed and random.random() < 0.2 else model.row(random)


def limits(random: Random) -> Limits:
    """In which way something is done."""
    return Limits(
        few=random.choice([0, 2, 20_000]),
        few_bytes=random.choice([0, 200, 1 << 20]),
        buckets=random.choice([1, 2, 4]),
        full=random.choice([1, 3, 1_000]),
        most_recent=random.choice([0, 3, 1_000]),
        most_files=random.choice([0, 2, 24]),
    )


@dataclass
class Run:
    """A view that reads the log span by span."""

    source: ViewSource
    messages: LogSource
    sink: Sink
    manifest: Manifest | None = None
    now: datetime = datetime(2026, 1, 1, tzinfo=UTC)

    def span(self, upto: Mapping[str, int], limits: Limits, *, small: bool) -> None:
        """Computes it, and commits what came of it."""
        before = self.manifest.offsets if self.manifest else dict.fromkeys(upto, 0)
        pieces = tuple(OffsetSlice(p, before[p], at) for p, at in upto.items())
        number = self.manifest.number + 1 if self.manifest else 1
        place = StatePlace(
            self.source.location, "default/o.s", folder_of("g", number, os.urandom(4).hex())
        )
        environment = Environment("UTC", self.now)
        others = tuple(log_source(one) for one in self.source.others)
        identity = " ".join(["id"] * (1 + len(others)))
        reader = ViewReader(self.messages, identity, self.source.view, environment, others=others)
        driver = QueryDriver(Cache(), lambda: cast("Any", Session(_no_spark)), limits)
        work = Computation(reader, place, self.manifest, driver)
        self.manifest = work.run(Span(pieces), small=small)
        files = place.files()
        contents = [files.read(part.name, part.digest) for part in self.manifest.parts]
        self.sink.take([one for content in contents for one in batches(content)])


def _no_spark() -> Any:
    raise NotImplementedError


def loaded(folder: Path, query: Query | Top, *, keyed: bool) -> ViewSource:
    """The query's file as a flow."""
    options = "'topic' = '{}', 'properties.bootstrap.servers' = 'k:9092'"
    upsert = f"'connector' = 'upsert-kafka', {options}, 'key.format' = 'json', "
    upsert += "'value.format' = 'json'"
    plain = f"'connector' = 'kafka', {options}, 'format' = 'json'"
    key = ", PRIMARY KEY (k) NOT ENFORCED" if keyed else ""
    columns = ", ".join(f"{name} {kind}" for name, kind in query.columns)
    names = ", ".join(name for name, _ in query.columns if name.startswith("x"))
    other = "CREATE TABLE w WITH ('topic' = 'w') LIKE s (OVERWRITING OPTIONS);\n"
    file = folder / "one.sql"
    file.write_text(
        f"CREATE TABLE s ({model.COLUMNS}{key}) WITH ("
        f"{(upsert if keyed else plain).format('s')});\n{other}"
        f"CREATE TABLE o ({columns}, PRIMARY KEY ({names}) NOT ENFORCED) WITH "
        f"({upsert.format('o')});\nINSERT INTO o {query.text()};\n"
    )
    source = choose(load(file), None).source
    assert isinstance(source, ViewSource)
    return source


def _checked(
    examples: int, drawn: st.SearchStrategy[Any] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    drawn = model.queries() if drawn is None else drawn

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        health = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
        return settings(
            max_examples=examples,
            derandomize=True,
            deadline=None,
            phases=(Phase.generate,),
            suppress_health_check=health,
        )(given(st.booleans(), drawn, st.randoms(use_true_random=True))(test))

    return decorated


@_checked(12)
def test_some_queries_over_some_logs(
    folder: Path, keyed: bool, query: Query, random: Random
) -> None:
    check(folder, query, random, keyed=keyed)


@pytest.mark.full
@pytest.mark.timeout(3600)
@_checked(500)
def test_any_query_over_any_log(folder: Path, keyed: bool, query: Query, random: Random) -> None:
    check(folder, query, random, keyed=keyed)


@_checked(12, tops())
def test_the_first_rows_of_each_key(folder: Path, keyed: bool, query: Top, random: Random) -> None:
    check(folder, query.of(keyed=keyed), random, keyed=keyed)


@pytest.mark.full
@pytest.mark.timeout(3600)
@_checked(500, tops())
def test_any_first_rows(folder: Path, keyed: bool, query: Top, random: Random) -> None:
    check(folder, query.of(keyed=keyed), random, keyed=keyed)


def check(folder: Path, query: Query | Top, random: Random, *, keyed: bool) -> None:
    """The result of the product is that of the model, whatever is read at once and in which way."""
    if isinstance(query, Query) and keyed:
        query = query.of_one_table()
    source = loaded(folder, query, keyed=keyed)
    messages = log_source(source.source)
    run = Run(source, messages, Sink([name for name, _ in query.columns if name.startswith("x")]))
    LOG.clear()
    tables = ("0/", "1/") if source.others else ("",)
    LOG.update({f"{one}{partition}": [] for one in tables for partition in "01"})
    table: dict[Any, Row] = {}
    bad: list[tuple[int, int]] = []
    for last in [False] * random.randint(1, 4) + [True]:
        for key, row in changes(random, keyed=keyed):
            _append(random.choice(tables), key, row, table, bad, keyed=keyed)
        before = run.manifest.offsets if run.manifest else dict.fromkeys(LOG, 0)
        ends = {p: len(log) for p, log in LOG.items()}
        upto = ends if last else {p: random.randint(before[p], end) for p, end in ends.items()}
        with patch.object(reading, "TOGETHER", random.choice([1, 3, 4_096])):
            run.span(upto, limits(random), small=random.random() < 0.5)
    assert sorted(run.sink.refused) == sorted(bad)
    kinds = dict(query.columns)
    found = [{n: _value(v, kinds[n]) for n, v in row.items()} for row in run.sink.rows.values()]
    wanted = [
        {n: _wanted(v) for n, v in row.items()}
        for row in query.rows(list(table.values()))
        if all(row[name] is not None for name in run.sink.keys)
    ]
    assert sorted(found, key=repr) == sorted(wanted, key=repr)


def _append(
    of: str,
    key: int,
    row: Any,
    table: dict[Any, Row],
    bad: list[tuple[int, int]],
    *,
    keyed: bool,
) -> None:
    """A message into the log of a table, and its row into the table that the log is."""
    whole = f"{of}{zlib.crc32(str(key).encode()) % 2}"
    (number, partition), log = of_table(whole), LOG[whole]
    sent = b'{"k":%d}' % key if keyed else None
    if row is BAD:
        bad.append((int(partition), len(log)))
        log.append((sent, row))
        return
    log.append((sent, None if row is None else _json({"k": key, **row})))
    name = key if keyed else (of, partition, len(log))
    if row is None:
        table.pop(name, None)
    else:
        table[name] = {"k": key, **row, AT: (len(log) - 1, int(partition)), model.TABLE: number}
