"""A lane that a test drives, and small flows for it."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dataflow_assets.connectors.memory import MemoryPartSource, MemorySliceSink, Store
from dataflow_assets.contracts import Sink, Source
from dataflow_assets.flow import Branch, Flow, Policies
from dataflow_assets.lanes import joint_jobs, lane, turns
from dataflow_assets.lanes.events import Began, Ended, Event, Left
from dataflow_assets.lanes.lane import Lane
from dataflow_assets.runs.request import Patience, Report, Request

PATIENCE = Patience(60, 0.05, 0.5)


def hurry(patch: pytest.MonkeyPatch) -> None:
    """What a lane asks every few seconds is asked more often."""
    patch.setattr(lane, "WANTED_SECONDS", 0.2)
    patch.setattr(lane, "MOMENT", 0.05)
    patch.setattr(joint_jobs, "LEAST_SECONDS", 0.2)
    patch.setattr(joint_jobs, "LEAST_SHARE", 0.0)
    patch.setattr(turns, "STEP_SECONDS", 0.1)


class Driving:
    """Drives a lane step by step, and keeps what it tells."""

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        flows: Sequence[Flow],
        patience: Patience = PATIENCE,
    ) -> None:
        self.flows, self.reason = list(flows), ""
        self.events: list[Event] = []
        self.lane = Lane(spark, Request(patience=patience))
        self._coming = iter(self.lane.drive(lambda: self.flows, lambda: self.reason or None))

    def until(self, done: Callable[[], object], seconds: float = 30.0) -> float:
        """Goes on until something is true; how long that took."""
        began = time.monotonic()
        while not done():
            assert time.monotonic() - began < seconds, f"not within {seconds:g} s: {self.story()}"
            self._step(next(self._coming))
        return time.monotonic() - began

    def going_on(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        self.until(lambda: time.monotonic() >= end, seconds + 30)

    def end(self) -> float:
        """Asks it to end; how long that took."""
        began, self.reason = time.monotonic(), self.reason or "enough"
        for event in self._coming:
            self._step(event)
        return time.monotonic() - began

    def abandon(self) -> None:
        self._coming.close()

    def of(self, kind: type[Began | Ended | Left], flow: Flow) -> list[Any]:
        return [e for e in self.events if isinstance(e, kind) and e.flow.id == flow.id]

    def reports(self, flow: Flow) -> list[Report]:
        return [e for e in self.events if isinstance(e, Report) and e.flow == flow.id]

    def began(self, flow: Flow) -> int:
        return len(self.of(Began, flow))

    def left(self, flow: Flow) -> list[BaseException]:
        return [event.error for event in self.of(Left, flow)]

    def story(self) -> str:
        return "\n".join(map(_told, self.events[-30:]))

    def _step(self, event: Event) -> None:
        if event is not None:
            self.events.append(event)


@dataclass
class Memory:
    """A flow from a table of a store into another one."""

    name: str = field(default_factory=lambda: f"lane-{uuid.uuid4().hex[:8]}")
    source: type[Any] = MemoryPartSource
    sink: type[Any] = MemorySliceSink
    options: dict[str, Any] = field(default_factory=dict)
    sink_options: dict[str, Any] = field(default_factory=dict)
    policies: Policies = Policies(freshness_seconds=4)
    made: int = 0

    def __post_init__(self) -> None:
        self.store = Store(self.name)
        self.store.create()

    @property
    def flow(self) -> Flow:
        source: Source = self.source(store=self.name, topic="t", **self.options)
        sink: Sink = self.sink(store=self.name, table="target", **self.sink_options)
        return Flow("lanes", self.name, source, (Branch(sink),), self.policies, hash="h1")

    def edited(self, **policies: Any) -> Flow:
        """With another manifest."""
        rules = replace(self.policies, **policies)
        return replace(self.flow, hash=uuid.uuid4().hex, policies=rules)

    def produce(self, rows: int) -> None:
        self.store.produce("t", 0, [self._body(n) for n in range(self.made, self.made + rows)])
        self.made += rows

    def _body(self, number: int) -> bytes:
        if self.source.delivers == "columns":
            return b"name"
        return json.dumps({"id": number, "name": "name"}).encode()

    def rows(self) -> list[int]:
        sql = "select json_extract(row, '$.id') from rows"
        return sorted(int(number) for (number,) in self.store.query(sql))

    @property
    def complete(self) -> bool:
        """Each row once."""
        rows = self.rows()
        assert len(set(rows)) == len(rows), f"{self.name}: rows were doubled"
        return rows == list(range(self.made))


def _told(event: Event) -> str:
    if isinstance(event, Report):
        return f"{event.flow}: {event.delta.rows} rows"
    return f"{type(event).__name__} {event.flow.id} {vars(event)}"[:200] if event else ""


def threads_of(flows: Sequence[Flow]) -> list[str]:
    names = {f"flow {flow.id}" for flow in flows}
    return [thread.name for thread in threading.enumerate() if thread.name in names]
