"""A flow from a polled table into a sink without Spark: its parts run in this process."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg
import pyarrow as pa

from dataflow_assets.connectors.postgresql import PostgresqlSink, PostgresqlSource
from dataflow_assets.contracts import (
    Cut,
    Limit,
    PartSlice,
    Position,
    Rejects,
    Run,
    SinkSession,
    SourceSession,
    Span,
    lasting,
)
from dataflow_assets.contracts.capabilities import ReplansParts
from dataflow_assets.flow import Branch, Flow, Policies
from dataflow_assets.micro_batch.branches import PassBranch
from dataflow_assets.micro_batch.fused import Pass
from dataflow_assets.micro_batch.sample import Sampler
from dataflow_assets.runs.request import Start
from dataflow_assets.runs.start_positions import settle

RECORDS = 1_000


@dataclass
class Polled:
    """Tables `source` and `target` of one schema of one server."""

    dsn: str
    schema: str
    options: dict[str, Any] = field(default_factory=dict)
    sink_options: dict[str, Any] = field(default_factory=dict)
    records: int = RECORDS
    bytes: int = Limit().bytes

    def run(self, query: str, *arguments: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(f'SET search_path TO "{self.schema}", public'.encode())
            cursor = connection.execute(query.encode(), arguments or None)
            return cursor.fetchall() if cursor.description else []

    @property
    def source(self) -> PostgresqlSource:
        config = {"connectionString": self.dsn, "table": f"{self.schema}.source"}
        found = PostgresqlSource.model_validate({**config, **self.options})
        return found.for_branches(upserts=self.sink.traits.upserts)

    @property
    def sink(self) -> PostgresqlSink:
        config = {"connectionString": self.dsn, "table": f"{self.schema}.target"}
        return PostgresqlSink.model_validate({**config, **self.sink_options})

    @property
    def flow(self) -> Flow:
        rules = Policies(rejects=Rejects("fail"))
        return Flow("polled", self.schema, self.source, (Branch(self.sink),), rules, hash="h")

    def drain(self) -> int:
        """To the end that is visible now; how many parts were read."""
        return sum(not piece.empty for span in self.spans() for piece in span.slices)

    def spans(self) -> Iterator[Span]:
        """Every span, once it is committed."""
        flow = self.flow
        branch = flow.branches[0]
        with ExitStack() as stack:
            source = stack.enter_context(closing(flow.source.open(flow.id)))
            target = replace(flow.target(branch), source_id=source.identity)
            session = stack.enter_context(closing(branch.sink.open(target, Run())))
            settle(flow, branch, source, session, Start())
            until = source.end()
            while True:
                positions = lasting(session.checkpoint.positions)
                span = source.plan(positions, self.limit, until)
                if span.empty:
                    assert not source.lags("table", positions["table"], until["table"])
                    return
                span = self._begun(session, span, source)
                self._pass(flow, session, span, source)
                yield span

    @property
    def limit(self) -> Limit:
        return Limit(self.records, self.bytes)

    def _begun(self, session: SinkSession, span: Span, source: SourceSession) -> Span:
        assert isinstance(source, ReplansParts)
        if session.table.schema() is None:
            found = Sampler(self.source, span, None, self.sink, (None,)).glance()
            assert found is not None
            session.table.create(found.schema)
        begun = session.begin(span)
        if begun.slices == span.slices:
            return begun
        parts = [piece for piece in begun.slices if isinstance(piece, PartSlice)]
        left = [part for part in parts if not part.empty]
        cut = Cut({part: source.smaller(part, self.limit) for part in left})
        return session.divide(begun, cut)

    def _pass(self, flow: Flow, session: SinkSession, span: Span, source: Any) -> None:
        branch = PassBranch(self.sink, session.ticket(), (None,))
        work = pickle.loads(pickle.dumps(Pass(flow.source, span, (branch,), 10)))  # noqa: S301 - ours
        receipts = []
        for index in (i for i, piece in enumerate(span.slices) if not piece.empty):
            for result in work.over_parts([index]):
                if result.failure:
                    raise result.failure.error()
                receipts += [result.receipt] if result.receipt else []
        session.finish(span, receipts, source)

    def position(self) -> Position:
        """Where the flow stands."""
        checkpoint = self.sink.peek(self.flow.target(self.flow.branches[0]))
        assert checkpoint is not None
        return checkpoint.positions["table"]

    def rows(self, columns: str = "*", order: str = "1") -> list[tuple[Any, ...]]:
        return self.run(f"SELECT {columns} FROM target ORDER BY {order}")

    def read(self, metadata: frozenset[str] = frozenset()) -> pa.Table:
        """What the source delivers of everything, without a sink."""
        with closing(self.source.open("polled/read")) as session:
            span = session.plan(session.start(), Limit(self.records))
        batches: list[pa.RecordBatch] = []
        for piece in span.slices:
            assert isinstance(piece, PartSlice)
            batches += self.source.batches(piece, metadata)
        return pa.Table.from_batches(batches)
