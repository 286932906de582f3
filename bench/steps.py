"""Steps in one process, without servers: what a record costs in each of them, and in the chain.

Processor time of one thread, so that other work on the machine distorts it less.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pydantic import SecretStr

from bench import flows, messages
from dataflow_assets import registry
from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.connectors.postgresql import PostgresqlSink
from dataflow_assets.contracts import Kind, OffsetSlice, Run, Target, Ticket
from dataflow_assets.micro_batch.branches import BranchSteps, PassBranch, Read
from dataflow_assets.micro_batch.message_metadata import MetadataRows
from dataflow_assets.micro_batch.transform import reader
from dataflow_assets.records.chain import Chain
from dataflow_assets.records.record import Record, parse, text
from dataflow_assets.records.step import Apply, Context, Example, Step

CONTEXT = Context(datetime(2026, 11, 21, tzinfo=UTC))
BATCH = 10_000  # messages, as Spark hands them over
ROUNDS = 7  # the best one counts: nothing makes a computation faster than it is
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("customer", pa.string()),
        ("amount", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("quantity", pa.int32()),
        Kind.JSON.field("address"),
    ]
)


def run() -> dict[str, Mapping[str, float]]:
    """Rows a second: of each step, of the chain and its steps, of all that a message goes through.

    `each`: every step on the record of its first example. `chain`: the five steps on messages of
    the benchmark, each on what those before it made. `message`: from bytes to Arrow columns, with
    the chain and `straight`, without it; and the parts of the former.
    """
    each = {name: _first_example(step) for name, step in registry.steps().items()}
    return {"each": each, "chain": _chain(), "message": _message()}


def _rate(step: Callable[[], object], count: int) -> float:
    found = []
    for _ in range(ROUNDS):
        begun = time.thread_time()
        step()
        found.append(time.thread_time() - begun)
    return count / min(found)


def _first_example(step: type[Step]) -> float:
    example = next(one for one in step.examples if one.out and one.given)
    apply = step.model_validate(dict(example.config)).compile(CONTEXT)
    return _applied(apply, [_record(example)] * BATCH)


def _record(example: Example) -> Record:
    return Record(parse((example.given or "").encode()), dict(example.metadata))


def _applied(apply: Callable[[Record], object], records: list[Record]) -> float:
    return _rate(lambda: _each(apply, records), len(records))


def _each(step: Callable[[Any], object], items: Iterable[Any]) -> None:
    """Keeps nothing: the collector would look at it again and again."""
    deque(map(step, items), 0)


def _chain() -> dict[str, float]:
    records = [Record(parse(body), {}) for body in messages.bodies(0, BATCH)]
    rates = {"whole": _applied(Chain(flows.chain(), CONTEXT), records)}
    for one in flows.chain():
        apply = one.compile(CONTEXT)
        rates[one.step.type] = _applied(apply, records)
        records = [_one(apply, record) for record in records]
    return rates


def _one(apply: Apply, record: Record) -> Record:
    found = apply(record)
    assert isinstance(found, Record)
    return found


def _message() -> dict[str, float]:
    bodies = list(messages.bodies(0, BATCH))
    chain = Chain(flows.chain(), CONTEXT)
    parsed = [Record(parse(body), {}) for body in bodies]
    made = [record.body for one in parsed for record in chain(one)]
    batch = pa.record_batch({"_at": pa.array(range(BATCH), pa.int64()), "body": bodies})
    return {
        "with the chain": _read(_reader(BranchSteps(flows.chain(), CONTEXT, frozenset())), batch),
        "straight": _read(_reader(None), batch),
        "parse": _rate(lambda: _each(parse, bodies), BATCH),
        "chain": _rate(lambda: _each(chain, parsed), BATCH),
        "text": _rate(lambda: _each(text, made), BATCH),
    }


def _read(read: Read, batch: pa.RecordBatch) -> float:
    (chunk,) = read(batch)
    assert (chunk.rows.num_rows, len(chunk.rejected)) == (batch.num_rows, 0)
    return _rate(lambda: read(batch), batch.num_rows)


def _reader(steps: BranchSteps | None) -> Read:
    source: Any = KafkaSource(brokers=("localhost:9092",), topic="bench")
    sink = PostgresqlSink(connection_string=SecretStr("postgresql://localhost/bench"), table="rows")
    ticket = Ticket(Target("bench/steps", "rows", "", "bench"), Run(), 1, SCHEMA)
    rows = MetadataRows(
        source, OffsetSlice("0", 0, BATCH), 1, steps.reads if steps else frozenset()
    )
    return reader(steps, [PassBranch(sink, ticket)], rows, None)
