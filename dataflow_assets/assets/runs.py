"""The runs of a flow, as Dagster's instance knows them: which one lives, which died, who is on."""

import json
from collections.abc import Callable, Iterator, Sequence

import dagster as dg

from dataflow_assets.assets.drivers import Driver
from dataflow_assets.flow import Flow

FLOW = "dataflow/flow"
FLOWS = "dataflow/flows"  # ids of the flows that a run drives, comma-separated
DRIVER = "dataflow/driver"
ERROR = "dataflow/error"
PERMANENT = "dataflow/permanent"
ASIDE = "dataflow/aside"  # JSON list of the branches that a run failed for
MANIFEST = "dataflow/manifest"
SENSOR = "dagster/sensor_name"
MAX_RETRIES = "dagster/max_retries"
LIVE = [
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
COMING = [dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED]


def sensor_name(flow: Flow) -> str:
    """The switch of a flow."""
    return f"{flow.slug}_sensor"


def job_name(flow: Flow) -> str:
    """The job of a flow."""
    return f"{flow.slug}_job"


class Runs:
    """The runs of one flow."""

    def __init__(self, instance: dg.DagsterInstance, flow: Flow) -> None:
        self._instance, self._flow = instance, flow

    def claim(self, run_id: str) -> None:
        """Writes into the run's tags what it drives, and which process does."""
        run = self._instance.get_run_by_id(run_id)
        known = run.tags.get(FLOWS, "").split(",") if run else []
        flows = ",".join(sorted({self._flow.id, *filter(None, known)}))
        tags = {FLOWS: flows, DRIVER: str(Driver.here()), MANIFEST: self._flow.hash[:16]}
        self._instance.add_run_tags(run_id, tags)

    def other(self, run_id: str) -> dg.DagsterRun | None:
        """A live run of the flow that was there first."""
        records = self._records(LIVE)
        own = next((r.create_timestamp for r in records if r.dagster_run.run_id == run_id), None)
        for record in records:
            run = record.dagster_run
            earlier = own is None or (record.create_timestamp, run.run_id) < (own, run_id)
            if run.run_id != run_id and earlier and self._drives(run) and not self._bury(run):
                return run
        return None

    def live(self) -> dg.DagsterRun | None:
        """A run that works on the flow or is about to; dead ones are reported as failed."""
        for record in self._records([*LIVE, *COMING]):
            run = record.dagster_run
            if (self._drives(run) or run.job_name == job_name(self._flow)) and not self._bury(run):
                return run
        return None

    def on(self) -> bool:
        """Whether a run works on the flow right now; dead ones are reported as failed."""
        runs = [record.dagster_run for record in self._records(LIVE)]
        return any(self._drives(run) and not self._bury(run) for run in runs)

    def failures(self) -> list[dg.RunRecord]:
        """The latest runs of the flow's job since the last one that did not fail, newest first."""
        wanted = dg.RunsFilter(job_name=job_name(self._flow))
        failed: list[dg.RunRecord] = []
        for record in self._instance.get_run_records(wanted, limit=10):
            if record.dagster_run.status != dg.DagsterRunStatus.FAILURE:
                break
            failed.append(record)
        return failed

    def fail(self, run_id: str, error: str, aside: Sequence[str] = (), *, permanent: bool) -> None:
        """Notes why a run failed; a permanent failure also keeps Dagster from trying it again.

        `aside`: the branches that it failed for, while the others went on.
        """
        tags = {ERROR: error[:500]} | ({ASIDE: json.dumps(aside)} if aside else {})
        if permanent:
            tags |= {PERMANENT: "true", MAX_RETRIES: "0"}
        self._instance.add_run_tags(run_id, tags)

    def _records(self, statuses: list[dg.DagsterRunStatus]) -> list[dg.RunRecord]:
        return list(self._instance.get_run_records(dg.RunsFilter(statuses=statuses), limit=500))

    def _drives(self, run: dg.DagsterRun) -> bool:
        return self._flow.id in run.tags.get(FLOWS, "").split(",")

    def _bury(self, run: dg.DagsterRun) -> bool:
        """Reports a run as failed whose process is gone; a crash must not block its flow."""
        driver = Driver.parse(run.tags.get(DRIVER, ""))
        if driver is None or not driver.dead or run.status not in LIVE:
            return False
        message = f"its process (pid {driver.pid} on {driver.host}) is gone without a word"
        self._instance.add_run_tags(run.run_id, {ERROR: message})
        self._instance.report_run_failed(run, message=f"{message}; the next run continues")
        return True


def switched_off(
    instance: dg.DagsterInstance, flow: Flow, run: dg.DagsterRun
) -> Callable[[], str | None]:
    """Whether the flow's switch went off under this run.

    A run that somebody asked for by hand while the switch was off goes on.
    """
    name = sensor_name(flow)
    was_on = run.tags.get(SENSOR) == name or name in _running(instance)

    def look() -> str | None:
        if was_on and name not in _running(instance) and name in _known(instance):
            return f"its sensor {name} was switched off"
        return None

    return look


def _running(instance: dg.DagsterInstance) -> set[str]:
    return {name for name, status in _states(instance) if status != "STOPPED"}


def _known(instance: dg.DagsterInstance) -> set[str]:
    return {name for name, _ in _states(instance)}


def _states(instance: dg.DagsterInstance) -> Iterator[tuple[str, str]]:
    if instance.schedule_storage is None:  # an instance without switches, as in tests
        return
    for state in instance.all_instigator_state():
        yield state.name, state.status.value
