"""The runs of a flow, as Dagster's instance knows them: which one lives, which died, who is on."""

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile

import dagster as dg

from dataflow_assets.assets.drivers import Driver
from dataflow_assets.assets.pulse import SILENT_SECONDS, Pulse
from dataflow_assets.flow import Flow

FLOW = "dataflow/flow"
FLOWS = "dataflow/flows"  # ids of the flows that a run drives or has driven, comma-separated
DRIVES = "dataflow/drives"  # "true": finds the runs of all flows among those of everything else
DRIVER = "dataflow/driver"  # with a flow's id behind it: which run drives the flow, and its process
ERROR = "dataflow/error"
PERMANENT = "dataflow/permanent"
SUSPENDED = "dataflow/aside"  # JSON list of the branches that a run failed for
MANIFEST = "dataflow/manifest"
SENSOR = "dagster/sensor_name"
MAX_RETRIES = "dagster/max_retries"
LIVE = [
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
COMING = [dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED]
BURIED = [*LIVE, dg.DagsterRunStatus.NOT_STARTED]

log = logging.getLogger(__name__)


def sensor_name(flow: Flow) -> str:
    """The switch of a flow."""
    return f"{flow.slug}_sensor"


def job_name(flow: Flow) -> str:
    """The job of a flow."""
    return f"{flow.slug}_job"


def driver_tag(flow: Flow) -> str:
    """The tag that says who drives a flow."""
    return f"{DRIVER}/{flow.id}"


def claim(run_id: str, driver: Driver) -> str:
    """Its value. Without the run's id, a run that is started again would inherit it as its own."""
    return f"{run_id} {driver}"


def going(instance: dg.DagsterInstance) -> list[dg.RunRecord]:
    """Every run that drives a flow, or is a flow's own and about to, newest first."""
    wanted = dg.RunsFilter(statuses=[*LIVE, *COMING], tags={DRIVES: "true"})
    return list(instance.get_run_records(wanted))


Going = Callable[[dg.DagsterInstance], Sequence[dg.RunRecord]]


class Runs:
    """The runs of one flow. `read`: how the runs of all flows are found."""

    def __init__(self, instance: dg.DagsterInstance, flow: Flow, read: Going = going) -> None:
        self._instance, self._flow, self._read = instance, flow, read
        self._pulse = Pulse(instance, flow)

    @contextmanager
    def driving(self, run_id: str) -> Iterator[None]:
        """Claims the flow for the run, and shows that it is alive, until the block ends."""
        self._claim(run_id)
        try:
            with self._pulse.beating(run_id):
                yield
        finally:
            self._release(run_id)

    def _claim(self, run_id: str) -> None:
        """Writes into the run's tags what it drives, and which process does."""
        run = self._instance.get_run_by_id(run_id)
        known = run.tags.get(FLOWS, "").split(",") if run else []
        flows = ",".join(sorted({self._flow.id, *filter(None, known)}))
        own = {driver_tag(self._flow): claim(run_id, Driver.here())}
        tags = {FLOWS: flows, DRIVES: "true", MANIFEST: self._flow.hash[:16]}
        self._instance.add_run_tags(run_id, tags | own)

    def _release(self, run_id: str) -> None:
        """Other steps of the run may take hours, in this process or in others."""
        try:
            self._instance.add_run_tags(run_id, {driver_tag(self._flow): "done"})
        except Exception as error:  # noqa: BLE001 - what was committed is committed
            log.warning("the run's tags could not be written: %s", type(error).__name__)

    def other(self, run_id: str) -> dg.DagsterRun | None:
        """A live run of the flow that was there first."""
        records = self._read(self._instance)
        own = next((r.create_timestamp for r in records if r.dagster_run.run_id == run_id), None)
        for record in records:
            run = record.dagster_run
            earlier = own is None or (record.create_timestamp, run.run_id) < (own, run_id)
            if run.run_id != run_id and earlier and self._drives(run) and not self._bury(record):
                return run
        return None

    def live(self) -> dg.DagsterRun | None:
        """A run that works on the flow or is about to; dead ones are reported as failed."""
        for record in self._read(self._instance):
            run = record.dagster_run
            if (self._drives(run) or run.job_name == job_name(self._flow)) and not self._bury(
                record
            ):
                return run
        return None

    def on(self) -> bool:
        """Whether a run works on the flow right now; dead ones are reported as failed."""
        records = self._read(self._instance)
        return any(self._drives(r.dagster_run) and not self._bury(r) for r in records)

    def failures(self) -> list[dg.RunRecord]:
        """The latest runs of the flow's job since the last one that did not fail, newest first."""
        wanted = dg.RunsFilter(job_name=job_name(self._flow))
        failed: list[dg.RunRecord] = []
        failure = dg.DagsterRunStatus.FAILURE
        for most in (1, 10):  # most often there is no failure, and one record says so
            records = self._instance.get_run_records(wanted, limit=most)
            failed = list(takewhile(lambda one: one.dagster_run.status == failure, records))
            if not failed:
                break
        return failed

    def fail(
        self, run_id: str, error: str, suspended: Sequence[str] = (), *, permanent: bool
    ) -> None:
        """Notes why a run failed; a permanent failure also keeps Dagster from trying it again.

        `suspended`: the branches that it failed for, while the others went on.
        """
        tags = {ERROR: error[:500]} | ({SUSPENDED: json.dumps(suspended)} if suspended else {})
        if permanent:
            tags |= {PERMANENT: "true", MAX_RETRIES: "0"}
        self._instance.add_run_tags(run_id, tags)

    def _drives(self, run: dg.DagsterRun) -> bool:
        return run.status in LIVE and self._driver(run) is not None

    def _driver(self, run: dg.DagsterRun) -> Driver | None:
        """The process that drives the flow in this very run; tags of an earlier one are copied."""
        whose, _, driver = run.tags.get(driver_tag(self._flow), "").partition(" ")
        return Driver.parse(driver) if whose == run.run_id else None

    def _bury(self, record: dg.RunRecord) -> bool:
        """Reports a run as failed that is dead; a crash must not block its flow."""
        message = self._dead(record)
        if not message:
            return False
        run = self._instance.get_run_by_id(record.dagster_run.run_id)
        if run is not None and run.status in BURIED:  # else it has ended since it was read
            self._instance.add_run_tags(run.run_id, {ERROR: message})
            self._instance.report_run_failed(run, message=f"{message}; the next run continues")
        return True

    def _dead(self, record: dg.RunRecord) -> str:
        """Why the run counts as dead; empty when it does not.

        Its process is gone; or nobody can look at its process, or it never said which one it is,
        and nothing was heard of it for long. What waits in the queue may wait.
        """
        run, driver = record.dagster_run, self._driver(record.dagster_run)
        alive = driver.alive if driver else None
        if alive or run.status not in BURIED:
            return ""
        if driver and alive is False:
            return f"its process (pid {driver.pid} on {driver.host}) is gone without a word"
        if time.time() - record.update_timestamp.timestamp() < SILENT_SECONDS:
            return ""
        if time.time() - self._pulse.last(run.run_id) < SILENT_SECONDS:
            return ""
        doing = f"was {run.status.value.lower()} and" if driver is None else "drove the flow, but"
        return f"it {doing} nothing was heard of it for {SILENT_SECONDS / 60:.0f} minutes"


def switched_off(
    instance: dg.DagsterInstance, flow: Flow, run: dg.DagsterRun
) -> Callable[[], str | None]:
    """Whether the flow's switch went off under this run.

    A run that somebody asked for by hand while the switch was off goes on.
    """
    name = sensor_name(flow)
    was_on = run.tags.get(SENSOR) == name or name in _running(instance)

    def look() -> str | None:
        if was_on and name not in _running(instance) and name in dict(_states(instance)):
            return f"its sensor {name} was switched off"
        return None

    return look


def _running(instance: dg.DagsterInstance) -> set[str]:
    return {name for name, status in _states(instance) if status != "STOPPED"}


def _states(instance: dg.DagsterInstance) -> Iterator[tuple[str, str]]:
    if instance.schedule_storage is None:  # an instance without switches, as in tests
        return
    for state in instance.all_instigator_state():
        yield state.name, state.status.value
