"""What was put back once and is rejected again after a rewind waits again, in every store."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.clickhouse.rejected import error_sink as beside_clickhouse
from dataflow_assets.contracts import ErrorRecord, OffsetSlice, Rejection, Rejects, Span, Target
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Patience, Request, Start
from dataflow_assets.sdk.record_ids import place_of
from dataflow_assets.sdk.rejected_records import error_record
from tests.conftest import Topics
from tests.connectors.kafka.sinking import Into, Sent, chunk
from tests.contract.clickhouse_drivers import Clickhouse
from tests.contract.conftest import numbered
from tests.contract.error_drivers import ERRORS, Beside
from tests.contract.iceberg_drivers import Iceberg
from tests.contract.postgresql_drivers import Postgresql
from tests.contract.test_replays import PAIRS, TABLE, UNKNOWN, Replaying

TRUNCATE = Start("earliest", table="truncate", confirmed=True)
TARGET = Target("ns/f", "postgresql:db/public/t", "hash", "t", "topic-1")


@pytest.fixture
def case(request: pytest.FixtureRequest, engine: SparkSession) -> Replaying:
    return Replaying(request, engine, *request.param)


def rewind(case: Replaying, start: Start = TRUNCATE) -> None:
    order = Request(start=start, patience=Patience(20, 0.01, 0.05))
    list(drain(case.flow(), lambda: case.engine, order))


@pytest.mark.parametrize("case", PAIRS, ids=map("-".join, PAIRS), indirect=True)
def test_what_is_rejected_again_is_put_back_again(case: Replaying) -> None:
    case.source.seed(numbered(1, 3), raw=[UNKNOWN[0]])
    case.drain(case.rejects)
    case.mended = True
    assert case.replay() == [(1, 1, 0)]
    assert case.replay() == []
    assert case.ids() == [1, 2, 100]
    case.mended = False
    rewind(case)
    assert case.ids() == [1, 2]
    case.mended = True
    assert case.replay() == [(1, 1, 0)]
    assert case.ids() == [1, 2, 100]


def record(reading: int, offset: int = 1) -> ErrorRecord:
    rejection = Rejection(offset, "sink", "why", b'{"id": 1}')
    return error_record(replace(TARGET, reading=reading), OffsetSlice("0", 0, 9), rejection)


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_sink_tells_readings_apart(kind: str, request: pytest.FixtureRequest) -> None:
    store = ERRORS[kind](request).declare().error_store()
    store.prepare()
    store.store([record(0), record(0, offset=2)])
    first, second = store.pending("ns/f", None, 10)
    assert (first.reading, second.reading) == (0, 0)
    store.mark_replayed([first])
    assert store.pending("ns/f", None, 10) == [second]
    store.store([record(5)])
    (again,) = [one for one in store.pending("ns/f", None, 10) if one.id == first.id]
    assert (again.reading, again.body) == (5, first.body)
    store.mark_replayed([first, second])  # as a replay does that has begun before the rewind
    assert store.pending("ns/f", None, 10) == [again]
    store.store([record(5)])
    assert store.pending("ns/f", None, 10) == [again]
    store.mark_replayed([again])
    assert store.pending("ns/f", None, 10) == []
    store.mark_replayed([first])
    assert store.pending("ns/f", None, 10) == []
    if kind not in {"lake", "nessie"}:  # where the row is gone, the replay's checkpoint knows
        store.store([record(5)])
        assert store.pending("ns/f", None, 10) == []


OBJECTS = (
    b'{\n  "id": 1,\r\n\t"name": "a\\nb"\r}',
    b'{"id": 1.10, "name": "\\u0000\\ud83d\\ude00", "n": 12345678901234567890123}',
)
TEXTS = (
    b'["of", "a", "list"]',
    b"two\nlines\r\n\r",
    b"with\0NUL",
    "Zeilen\u2028trenner\u0085".encode(),
    b'{"id": "\xff\xfe"}',
    b'{"a": 1, "a": 2}',
    b"\xff\n\0",
    b"\n",
    b"",
    None,
)


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_sink_gives_back_what_was_sent(kind: str, request: pytest.FixtureRequest) -> None:
    """Whatever its bytes; of a JSON object the values."""
    store = ERRORS[kind](request).declare().error_store()
    store.prepare()
    sent = [*OBJECTS, *TEXTS]
    rejected = [Rejection(n, "sink", "why\nnot\0", body) for n, body in enumerate(sent)]
    store.store([error_record(TARGET, OffsetSlice("0", 0, 99), one) for one in rejected])
    found = {place_of(one.id): one.body for one in store.pending("ns/f", None, 100)}
    bodies = [found["0", n] for n in range(len(sent))]
    assert bodies[len(OBJECTS) :] == [*TEXTS]
    for body, original in zip(bodies, OBJECTS, strict=False):
        assert json.loads(body or b"", parse_float=str) == json.loads(original, parse_float=str)


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize(
    "columns", ["error text, original_message text", "data jsonb", "data text"]
)
def test_a_table_of_other_columns_does_so_too(
    columns: str, waits: bool, request: pytest.FixtureRequest
) -> None:
    errors = Beside(request)
    errors.execute(f"create table {{t}} ({columns}, replayed_at timestamptz)")
    foreign = json.dumps({"error": {"reading": "x"}}).replace("{", "{{").replace("}", "}}")
    errors.execute(f"insert into {{t}} ({columns.partition(' ')[0]}) values ('{foreign}')")
    store = errors.declare().error_store()
    store.store([record(0)])
    found = store.pending("ns/f", None, 10)
    store.mark_replayed([] if waits else found)
    store.store([record(3)])
    (again,) = store.pending("ns/f", None, 10)
    assert again.reading == 3


def test_a_topic_beside_its_target_tells_readings_apart(
    kafka: devservers.Kafka, topic: Topics
) -> None:
    target = Into(kafka, topic())
    piece = OffsetSlice("0", 0, 3)
    refused = Rejection(1, "step", "cast: no number", b'{"a": "x"}', rows=2)
    readings = []
    for _ in range(2):
        session = target.open()
        session.restart({"0": 0}, "source-id")
        session.begin(Span((piece,)))
        writer = target.sink.writer(session.ticket(), piece)
        writer.write(replace(chunk([Sent(b"{}")]), rejected=[refused], seen=3))
        writer.close(complete=False)
        session.close()
        (entry,) = target.sink.rejected_entries().pending("default/flow", None, 10)
        assert (entry.reading, entry.rows) == (session.checkpoint.reading, 2)
        readings.append(entry.reading)
        target.sink.rejected_entries().mark_replayed([entry])
        assert target.sink.rejected_entries().pending("default/flow", None, 10) == []
    assert readings[0] < readings[1]


def older(case: Replaying) -> None:
    """The tables as an earlier version has made them."""
    if isinstance(case.sink, Postgresql):
        case.query("alter table {s}.dataflow_rejected drop column rows, drop column reading")
        case.query("alter table {s}.dataflow_checkpoint drop column reading")
    elif isinstance(case.sink, Clickhouse):
        _narrowed(case.sink)
    else:
        assert isinstance(case.sink, Iceberg)
        table = case.sink.catalog.load_table((case.sink.namespace, "target_rejected"))
        with table.update_schema() as change:
            change.delete_column("rows")
            change.delete_column("reading")


def _narrowed(sink: Clickhouse) -> None:
    columns = {n: k for n, k in beside_clickhouse.BESIDE.items() if n not in {"rows", "reading"}}
    ddl = beside_clickhouse.statement("older", columns)
    sink.query(ddl.replace("UInt64", "UInt8"))
    names = ", ".join([*columns, "replayed_at"])
    sink.query(f"insert into older ({names}) select {names} from target_rejected final")
    sink.query("drop table target_rejected")
    sink.query("rename table older to target_rejected")


@pytest.mark.parametrize(
    "case", [(m, TABLE) for m in ("postgresql", "clickhouse", "iceberg")], indirect=True, ids=str
)
def test_tables_of_an_earlier_version_are_brought_up_to_date(case: Replaying) -> None:
    case.source.seed(numbered(1, 3), raw=[UNKNOWN[0]])
    case.drain(Rejects())
    older(case)
    flow = case.flow()
    known = flow.branches[0].sink.peek(flow.target(flow.branches[0]))
    assert known is not None
    if isinstance(case.sink, Postgresql):
        assert known.reading == 0
    case.mended = True
    assert case.replay() == [(1, 1, 0)]
    case.mended = False
    rewind(case)
    case.mended = True
    assert case.replay() == [(1, 1, 0)]
    assert case.ids() == [1, 2, 100]
