"""Which flows a lane drives now: switched on, fit, and leased by no run of their own."""

import logging
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import dagster as dg

from dataflow_assets.assets import switches
from dataflow_assets.assets.failures import sentence
from dataflow_assets.assets.lane_evictions import Evictions
from dataflow_assets.assets.lane_registry import FlowState, LanePage, LaneRegistry
from dataflow_assets.assets.lane_runs import LOCATION, LaneRuns, elsewhere
from dataflow_assets.assets.leases import going
from dataflow_assets.assets.runs import Runs
from dataflow_assets.flow import Flow
from dataflow_assets.lanes.lane import END_SECONDS
from dataflow_assets.manifests.load import Loaded
from dataflow_assets.runs.redaction import mask

WRITE_SECONDS = 10.0  # how often the registry says how the flows fare
_REMOVED = "its manifest was removed"
_SUSPENDED = "its manifest says suspended"
_BROKEN = "its manifest has mistakes (see `dataflow check`)"
_AWAY = "the folder of its manifest does not exist"
_FOLDERS = (
    "the process of a run reads the manifests itself: give it the files and the environment of the "
    "code server, DATAFLOW_FLOWS among them"
)
_UNTOUCHED = (
    "nobody has switched on any of its flows. They count as switched on where DATAFLOW_START is 1, "
    "as for the sensor ingest, which has started this run: set DATAFLOW_START for the processes of "
    "runs, too, or switch the flows on"
)

log = logging.getLogger(__name__)

Manifests = Callable[[], Loaded]


def drivable(flow: Flow) -> bool:
    """Returns whether a lane may drive the flow at all; others have runs of their own.

    Asked of each flow by the run of a lane, and by the sensor `ingest`.
    """
    return flow.source.traits.incremental and not flow.pause_reason()


class LaneFlows:
    """The flows of one lane, as switches, manifests, failures and leases say.

    One for each run of a lane, used by the one thread that iterates over `Lane.drive`. Errors of
    Dagster's storage are logged, and what was known before holds.
    """

    def __init__(  # noqa: PLR0913 - whose flows, what is said of them, and what becomes of them
        self,
        instance: dg.DagsterInstance,
        lane: str,
        run: dg.DagsterRun,
        manifests: Manifests,
        state: Callable[[Flow], FlowState],
        *,
        driven: Callable[[], Mapping[str, Flow]],
    ) -> None:
        """`driven`: what `Lane.current_flows` says."""
        self._instance, self._lane, self._run_id = instance, lane, run.run_id
        self._location = run.tags.get(LOCATION, "")
        self._manifests, self._state, self._driven = manifests, state, driven
        self._registry = LaneRegistry(instance, lane)
        self._leaving = LaneRegistry(instance, lane, "leaving")
        self._patience = time.monotonic() + END_SECONDS
        """How long flows are left to the run that drove the lane before."""
        self.awaited: set[str] = set()
        """Flows that the run which drove the lane before has still to let go."""
        self._written = 0.0
        self._wanted: Sequence[Flow] | None = None
        self._named: dict[str, Flow] = {}
        """Those that are driven or about to be, as the registry says."""
        self._why: dict[str, str] = {}
        self._chosen: dict[str, Flow] = {}
        """Every flow that a look has chosen: why it is left out is asked when it has left."""
        self._let_go: dict[str, str] = {}
        """Driven flows that a look has left out, and why: they end, wanted again or not."""
        self._loaded = Loaded()
        self._unread = ""
        """Why the last look that failed did."""
        self.successor = ""
        """The newer run of the lane that takes over."""
        self.over = ""
        """Why the run is to end, whatever the flows do."""
        self.refused = ""
        """Why the run must not drive the lane at all."""

    def flows_to_drive(self) -> Sequence[Flow]:
        """The flows to drive; the last answer where Dagster's storage cannot be asked.

        Called by the lane every two seconds. A few questions to Dagster's storage, however
        many flows there are, and one look at the manifests' folder.
        """
        try:
            self._wanted = self._look()
        except Exception as error:  # noqa: BLE001 - storages raise many kinds; the next look may do
            flows, text = self._loaded.flows, sentence(error).partition("\n")[0][:300]
            # Before the flows are known nobody knows what of the text is a secret.
            self._unread = mask(text, flows) if flows else type(error).__name__
            log.warning("which flows to drive could not be found out: %s", self._unread)
        return self._wanted or ()

    def lets_go(self, flow: Flow) -> bool:
        """True where the flow must not be driven now, or must not have been since it began.

        Called when it has left; `end` follows.
        """
        driven = self.flows_to_drive()
        gone = flow.id in self._let_go or all(one.id != flow.id for one in driven)
        return bool(self.over) or gone

    def why_not(self, flow: Flow) -> str:
        """Why the lane does not drive the flow any more; empty where the lane itself ends."""
        return self.over or self._why.get(flow.id, "") or self._let_go.get(flow.id, "")

    def is_gone(self, flow: Flow) -> bool:
        """True where no flow reads its source any more, neither this one nor a successor.

        Of a manifest with mistakes nobody knows: it may be corrected in a moment.
        """
        loaded = self._loaded.flows
        others = {one.source.traits.reserved for one in loaded if one.id != flow.id} - {""}
        gone = not self.over and self._why.get(flow.id) in {_REMOVED, _SUSPENDED}
        return gone and flow.source.traits.reserved not in others

    @property
    def none(self) -> bool:
        """True where there is nothing to drive and nothing being driven."""
        return self._wanted is not None and not self._wanted and not self._driven()

    def idle_reason(self, *, asked: bool) -> str:
        """Why a run that has driven nothing never will, in this process; empty where it may.

        A file with a mistake may have the flows of this lane.

        Called once, when such a run ends. `asked`: the sensor `ingest` has started it, to which a
        flow of the lane was switched on.
        """
        if self._wanted is None and self._unread:
            return f"lane {self._lane}: its flows could not be found out: {self._unread}"
        if self.over or not self.none or self._loaded.findings:
            return ""
        own = [flow for flow in self._loaded.flows if flow.lane == self._lane]
        if not own:
            read = ", ".join(map(_show, self._loaded.paths)) or "no folder"
            there = ", ".join(sorted({flow.lane for flow in self._loaded.flows})) or "none"
            return (
                f"lane {self._lane}: no flow of this lane is in {read} (lanes there: {there}). If "
                f"its flows were not removed meanwhile: {_FOLDERS}"
            )
        off = asked and not switches.starts_switched_on()
        untouched = off and switches.is_untouched(self._instance, own)
        return f"lane {self._lane}: {_UNTOUCHED}" if untouched else ""

    def note_change(self) -> None:
        """A flow's status changed: it is written on the next poll."""
        self._written = 0.0

    def end(self, flow: Flow) -> None:
        """The lane has let the flow go: whoever waits for it may know at once.

        Called with its event `Ended` or `Left`.
        """
        self._let_go.pop(flow.id, None)
        self._named.pop(flow.id, None)
        self._written = 0.0
        self._write()

    def _look(self) -> Sequence[Flow]:
        self._loaded = self._manifests()
        fit = self._fit(self._loaded.flows)
        self.awaited = self._left_to_predecessor(fit)
        free = self._without_own_runs([flow for flow in fit if flow.id not in self.awaited])
        if not self.over and {flow.id for flow in free} - self._named.keys():
            # First said, then looked again: a run of a flow's own leases it first, and looks then.
            self._name(free, at_once=True)
            free = self._without_own_runs(free)
        if self.over:  # the newer run goes by what is written now: nothing more begins
            free = [flow for flow in free if flow.id in self._driven()]
            self._written = 0.0
        left_out = self._driven().keys() - {flow.id for flow in free}
        self._let_go |= {name: self._why.get(name, "") for name in left_out}
        self._chosen |= {flow.id: flow for flow in free}
        self._name(
            free, at_once=len(self._named) > len({f.id for f in free} | self._driven().keys())
        )
        return free

    def _name(self, flows: Sequence[Flow], *, at_once: bool) -> None:
        self._named = {flow.id: flow for flow in [*flows, *self._driven().values()]}
        self._written = 0.0 if at_once else self._written
        self._write()

    def _fit(self, flows: Sequence[Flow]) -> list[Flow]:
        on, out = switches.on(self._instance, flows), Evictions(self._instance).of(flows)
        self._why = {flow.id: _reason_out(flow, self._lane, on) for flow in flows}
        missing = [flow for name, flow in self._chosen.items() if name not in self._why]
        self._why |= {flow.id: self._why_missing(flow) for flow in missing}
        fit = [flow for flow in flows if not self._why[flow.id] and flow.id not in out]
        for flow in fit:
            if self._driven().get(flow.id, flow).hash != flow.hash:
                self._why[flow.id] = "its manifest changed"
        return fit

    def _why_missing(self, flow: Flow) -> str:
        """A mistake in another file can be the reason, too: the flow may have moved there."""
        away = [path for path in self._loaded.paths if not path.exists()]
        if any(flow.file.is_relative_to(path) for path in away):
            return _AWAY
        broken = self._loaded.broken_files
        moved = any(_names(Path(file), flow) for file in broken)
        return _BROKEN if moved or (broken and flow.file.exists()) else _REMOVED

    def _without_own_runs(self, flows: Sequence[Flow]) -> Sequence[Flow]:
        """Without those that a run of their own drives; also whether the lane has another run."""
        going_runs = going(self._instance)
        self._judge([record.dagster_run.run_id for record in going_runs], going_runs)
        free = []
        for flow in flows:
            run = Runs(self._instance, flow, going_runs).on()
            if run is None:
                free.append(flow)
            else:
                self._why[flow.id] = f"run {run.run_id[:8]} drives it now"
        return free

    def _left_to_predecessor(self, flows: Sequence[Flow]) -> set[str]:
        """Flows that the run before has still to let go; after a minute they are taken from it."""
        if time.monotonic() >= self._patience:
            return set()
        page = self._runs(None).pages().get("leaving", LanePage())
        if page.run == self._run_id:
            return set()
        return {flow.id for flow in flows if flow.id in page.flows} - self._named.keys()

    def _judge(self, live: Sequence[str], known: Sequence[dg.RunRecord]) -> None:
        runs = self._runs(known)
        driver = runs.driver()
        if self._run_id not in live:
            self.over = "this run was reported as ended: it was silent for too long"
        if driver is not None and driver.run_id != self._run_id:
            self.successor = driver.run_id
            self.over = self.over or f"run {driver.run_id[:8]} of the lane takes over"
        if other := runs.elsewhere(self._run_id):
            self.refused = elsewhere(self._lane, other)
            self.over = self.over or self.refused

    def _runs(self, known: Sequence[dg.RunRecord] | None) -> LaneRuns:
        return LaneRuns(self._instance, self._lane, known, self._location)

    def _write(self) -> None:
        if time.monotonic() - self._written < WRITE_SECONDS:
            return
        try:
            if self.refused and self._registry.read().run != self._run_id:
                return  # the page of the lane that drives
            states = {name: self._state(flow) for name, flow in self._named.items()}
            if self.successor:
                # Says what is still driven before it leaves the lane's page to the newer run.
                self._leaving.write(self._run_id, states)
                page = self._registry.read()
                if page.run == self._run_id and page.flows:
                    self._registry.write(self._run_id, {})
            else:
                self._registry.write(self._run_id, states)
            self._written = time.monotonic()
        except Exception as error:  # noqa: BLE001 - as above
            log.warning("the lane's registry could not be written: %s", type(error).__name__)


def _reason_out(flow: Flow, lane: str, on: Collection[str]) -> str:
    """Why the lane must not drive a flow that has a manifest; empty where it may."""
    if flow.suspended:
        return _SUSPENDED
    if pause := flow.pause_reason():
        return pause
    if not drivable(flow):
        return "it has runs of its own now"
    if flow.lane != lane:
        return f"it belongs to lane {flow.lane} now"
    return "" if flow.id in on else f"its sensor {switches.sensor_name(flow)} was switched off"


def _show(path: Path) -> str:
    return f"{path.absolute()}" + ("" if path.exists() else " (does not exist)")


def _names(file: Path, flow: Flow) -> bool:
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return False
    except OSError:
        return True  # nobody knows
    return re.search(rf"(?<![\w.-]){re.escape(flow.name)}(?![\w.-])", text) is not None
