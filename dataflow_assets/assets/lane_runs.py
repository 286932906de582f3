"""The runs of a lane, and the book in which the one that drives says what it drives.

A newer run of a lane takes over from an older one: the older sees its claim and lets all flows go.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field

import dagster as dg

from dataflow_assets.assets.claims import Claims, failed_since, going
from dataflow_assets.assets.switches import INGEST
from dataflow_assets.flow import Flow
from dataflow_assets.lanes.lane import END_SECONDS

LANE = "dataflow/lane"
LOOK_SECONDS = 0.5


class LaneRuns:
    """The runs of one lane. `known`: what `going` has found, if it has."""

    def __init__(
        self,
        instance: dg.DagsterInstance,
        lane: str,
        known: Sequence[dg.RunRecord] | None = None,
    ) -> None:
        self._instance, self._lane, self._known = instance, lane, known
        self._claims = Claims(instance, f"lane:{lane}")

    @contextmanager
    def driving(self, run_id: str) -> Iterator[None]:
        """Claims the lane for the run, and shows that it is alive, until the block ends."""
        with self._claims.driving(run_id, {LANE: self._lane}):
            yield

    def live(self) -> Sequence[dg.RunRecord]:
        """Runs that drive the lane or are about to, newest first; dead ones are reported."""
        records = going(self._instance) if self._known is None else self._known
        own = [r for r in records if r.dagster_run.tags.get(LANE) == self._lane]
        found = [record for record in own if not self._claims.bury(record)]
        return sorted(found, key=lambda r: (r.create_timestamp, r.dagster_run.run_id), reverse=True)

    def driver(self) -> dg.DagsterRun | None:
        """The newest run that has claimed the lane."""
        runs = [record.dagster_run for record in self.live()]
        return next((run for run in runs if self._claims.held(run)), None)

    def failures(self) -> Sequence[dg.RunRecord]:
        """The latest runs of the lane since the last one that did not fail, newest first."""
        wanted = dg.RunsFilter(job_name=INGEST, tags={LANE: self._lane})
        return failed_since(self._instance, wanted)


@dataclass(frozen=True)
class FlowState:
    """How a flow fares in its lane, for people. `failing`: it has met an error and tries again."""

    text: str
    failing: bool = False


@dataclass(frozen=True)
class Page:
    """What the run of a lane drives, and how each flow fares."""

    run: str = ""
    at: float = 0.0
    flows: Mapping[str, str] = field(default_factory=dict)
    failing: Sequence[str] = ()
    """Those of them that have met an error and try again."""


class Book:
    """Where the run of a lane says what it drives, for sensors and for runs of flows' own."""

    def __init__(self, instance: dg.DagsterInstance, lane: str) -> None:
        self._storage = instance.daemon_cursor_storage
        self._key = f"dataflow/lane/{lane}"

    def read(self) -> Page:
        """The newest page."""
        text = self._storage.get_cursor_values({self._key}).get(self._key)
        return Page(**json.loads(text)) if text else Page()

    def write(self, run_id: str, states: Mapping[str, FlowState]) -> None:
        """Turns the page."""
        texts = {name: state.text for name, state in states.items()}
        failing = [name for name, state in states.items() if state.failing]
        page = asdict(Page(run_id, time.time(), texts, failing))
        self._storage.set_cursor_values({self._key: json.dumps(page)})


def let_go(instance: dg.DagsterInstance, flow: Flow) -> str:
    """Waits until the lane lets a flow go that a run of its own has claimed; the lane's run if so.

    After a minute the run goes on all the same: it takes the flow's epoch, and what the lane still
    tries to commit is refused.
    """
    return _waited_for(instance, flow.lane, lambda page: flow.id in page.flows)


def taken_over(instance: dg.DagsterInstance, lane: str, run_id: str) -> str:
    """Waits until the run that drove the lane before has let all flows go; that run if there was.

    The run that waits has claimed the lane: the other one sees it within two seconds.
    """
    return _waited_for(instance, lane, lambda page: page.run != run_id and bool(page.flows))


def _waited_for(instance: dg.DagsterInstance, lane: str, drives: Callable[[Page], bool]) -> str:
    """The live run of the lane that was waited for because it drove; empty where none did."""
    book, run = Book(instance, lane), ""
    end = time.monotonic() + END_SECONDS
    while time.monotonic() < end and drives(page := book.read()):
        if not _lives(instance, lane, page.run):
            break
        run = page.run
        time.sleep(LOOK_SECONDS)
    return run


def _lives(instance: dg.DagsterInstance, lane: str, run_id: str) -> bool:
    return any(one.dagster_run.run_id == run_id for one in LaneRuns(instance, lane).live())
