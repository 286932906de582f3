"""Metrics of one run of a flow: told once for each micro-batch, commit and error."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, Self, get_args

from dataflow_assets.contracts import OffsetSlice, Span
from dataflow_assets.errors import DataflowError, TakenOver
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.metrics import declarations as metric
from dataflow_assets.metrics.declarations import Metric
from dataflow_assets.metrics.process import recorder
from dataflow_assets.metrics.recorder import MicroBatch, Recorder, Timing
from dataflow_assets.micro_batch.results import SliceCounts
from dataflow_assets.runs.lag_metrics import lag_samples
from dataflow_assets.runs.request import Report

Phase = Literal["plan", "begin", "pass", "finish"]
STATES = ("Running", "Error", "Stopped")
REFRESH_SECONDS = 10.0
_STAGES = {"plan": "read", "begin": "sink_write", "pass": "write", "finish": "sink_write"}


class FlowMetrics:
    """The metrics of one run of one flow; used by the thread that drives it."""

    def __init__(self, flow: Flow, to: Recorder | None = None) -> None:
        """`to`: by default what this process records."""
        self._flow, self._to = flow, to or recorder()
        self._ids = (flow.namespace, flow.name)
        self._source = flow.source_address.system
        self._phase: Phase = "plan"
        self._timings: list[Timing] = []
        self._read = self._went_well = self._tried = 0
        self._found: int | None = None
        """When a look first found what is not committed yet."""
        self._refreshed = time.monotonic()

    def __enter__(self) -> Self:
        self._to.refresh_by(self, self._refresh)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """The run is over; one that another run has taken the flow from tells nothing of it."""
        if not isinstance(error, TakenOver):
            self._set_state("Error" if isinstance(error, Exception) else "Stopped")
        self._refresh(0.0)
        self._to.forget(self, self._ids)

    @contextmanager
    def phase(self, name: Phase) -> Iterator[None]:
        """Times the block; an error inside is counted for this phase."""
        self._phase, began = name, time.time_ns()
        if name == "plan":
            self._timings.clear()
        try:
            yield
        finally:
            self._timings.append(Timing(name, began, time.time_ns()))

    def note_look(self, span: Span) -> None:
        """A look at the source went well; where it found nothing, all that there is was read."""
        self._to.health.note_progress()
        self._set(metric.POLL, self._source, "source", value=1)
        self._set(metric.CONNECTION, self._source, "source", value=1)
        if span.empty:
            self._found = None
            self._set_state("Running")
            return
        self._found = self._found or self._timings[0].began
        pieces = [one for one in span.slices if isinstance(one, OffsetSlice)]
        self._set(metric.ACTIVE, value=sum(max(0, one.upto - one.after) for one in pieces))

    def note_commit(self, report: Report) -> None:
        """A branch has committed, or tells at its end what an attempt that failed had committed."""
        self._to.health.note_progress()
        branch, done = report.branch, report.delta
        sink, table = branch.address.system, (branch.id, branch.address.name)
        self._count(metric.SENT, sink, _route(branch), by=done.rows)
        self._count(metric.WRITTEN, sink, "sink", _route(branch), by=done.rows)
        self._count(metric.BYTES, *table, by=done.bytes)
        if done.rows:
            self._observe(metric.SIZE, "output", value=done.bytes / done.rows, times=done.rows)
        if at := report.checkpoint.committed_at:
            self._set(metric.COMMITTED, *table, value=at.timestamp())
        if report.table_files is not None:
            self._set(metric.FILES, *table, value=report.table_files)
        self._set(metric.CONNECTION, sink, "sink", value=1)
        for declared, labels, value in lag_samples(
            self._flow, branch, report.lag, report.checkpoint.positions
        ):
            self._set(declared, *labels, value=value)
        if not report.last:
            self._note_operation("sink_write", "success")

    def note_micro_batch(self, slices: Sequence[SliceCounts]) -> None:
        """All branches have committed; only now it counts as read."""
        timings, self._timings = self._timings, []
        whole = (timings[-1].ended - (self._found or timings[0].began)) / 1e9
        self._found = None
        self._note_operation("write", "success")
        for one in slices:
            self._note_slice(one, whole)
        for name in get_args(Phase):
            seconds = sum(timing.seconds for timing in timings if timing.phase == name)
            self._observe(metric.PHASE, name, value=seconds)
        for timing in timings:
            if timing.phase == "finish":
                self._observe(metric.STAGE, "sink_write", value=timing.seconds)
        self._set(metric.ACTIVE, value=0)
        self._set_state("Running")
        records = sum(one.records for one in slices)
        self._to.trace(MicroBatch(self._attributes(records=records), timings))

    def _note_slice(self, one: SliceCounts, whole: float) -> None:
        self._read += one.records
        self._count(metric.RECEIVED, self._source, by=one.records)
        self._count(metric.READ, self._source, "source", by=one.records)
        self._observe(metric.PROCESSING, value=one.seconds, times=one.records)
        self._observe(metric.END_TO_END, value=whole, times=one.records)
        stages = (("read", one.read), ("transformation", one.transform), ("write", one.write))
        for stage, seconds in stages:
            self._observe(metric.STAGE, stage, value=seconds)
        if one.records:
            size = one.bytes / one.records
            self._observe(metric.SIZE, "input", value=size, times=one.records)
        for stage, error_type, step, index, times in one.rejected:
            self._count(metric.REJECTED, stage, error_type, by=times)
            if step:
                self._count(metric.STEP_ERRORS, step, index, error_type, by=times)

    def note_error(self, error: DataflowError) -> None:
        """An attempt has ended with it, or a branch is suspended for it."""
        timings, self._timings, self._found = self._timings, [], None
        if timings:
            self._to.trace(MicroBatch(self._attributes(), timings, type(error).__name__))
        self._set(metric.ACTIVE, value=0)
        if isinstance(error, TakenOver):
            return  # another run drives the flow, and tells what becomes of it
        branches = [one for one in self._flow.branches if one.id == error.branch]
        end = (branches[0].address.system, "sink") if branches else (self._source, "source")
        stage, kind = _STAGES[self._phase], type(error).__name__
        if not branches and self._phase == "pass":
            stage = "read"
        self._count(metric.ERRORS, *end, stage, kind)
        self._count(metric.STAGE_ERRORS, stage, kind)
        self._set(metric.CONNECTION, *end, value=0)
        if not branches:
            self._set(metric.POLL, *end, value=0)
        self._note_operation("sink_write" if self._phase == "finish" else "write", "error")
        self._set_state("Error")

    def _attributes(self, **more: int) -> dict[str, str | int]:
        return {"namespace": self._flow.namespace, "name": self._flow.name, **more}

    def _note_operation(self, operation: str, status: str) -> None:
        self._tried += 1
        self._went_well += status == "success"
        self._count(metric.OPERATIONS, operation, status)

    def _set_state(self, state: str) -> None:
        for one in STATES:
            self._set(metric.STATUS, one, value=float(one == state))

    def _refresh(self, after: float = REFRESH_SECONDS) -> None:
        seconds = time.monotonic() - self._refreshed
        if seconds < after:
            return
        read, well, tried = self._read, self._went_well, self._tried
        self._read = self._went_well = self._tried = 0
        self._refreshed = time.monotonic()
        self._set(metric.THROUGHPUT, value=read / seconds if seconds else 0.0)
        if tried:
            self._set(metric.SUCCESS, value=well / tried)

    def _count(self, declared: Metric, *labels: str, by: float = 1) -> None:
        self._to.count(declared, *self._ids, *labels, by=by)

    def _observe(self, declared: Metric, *labels: str, value: float, times: int = 1) -> None:
        self._to.observe(declared, *self._ids, *labels, value=value, times=times)

    def _set(self, declared: Metric, *labels: str, value: float) -> None:
        self._to.set(declared, *self._ids, *labels, value=value)


def _route(branch: Branch) -> str:
    return ", ".join(sorted(route or "default" for route in branch.routes))
