"""The runs of a flow, as Dagster's instance knows them: which one lives, which died, who is on."""

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import dagster as dg

from dataflow_assets.assets.leases import ERROR, Leases, failed_since, going
from dataflow_assets.flow import Flow

FLOW = "dataflow/flow"
FLOWS = "dataflow/flows"  # ids of the flows that a run drives or has driven, comma-separated
PERMANENT = "dataflow/permanent"
SUSPENDED = "dataflow/aside"  # JSON list of the branches that a run failed for
MANIFEST = "dataflow/manifest"
SENSOR = "dagster/sensor_name"
MAX_RETRIES = "dagster/max_retries"
RESULT = "dataflow/result"  # of a scheduled run, for its triggers, also those of a later attempt


def job_name(flow: Flow) -> str:
    return f"{flow.slug}_job"


class Runs:
    """The runs of one flow, those of lanes aside. `known`: what `going` has found, if it has.

    Used in code servers, by sensors, and in the processes of runs. Each method raises what
    Dagster's storage raises.
    """

    def __init__(
        self,
        instance: dg.DagsterInstance,
        flow: Flow,
        known: Sequence[dg.RunRecord] | None = None,
    ) -> None:
        self._instance, self._flow, self._known = instance, flow, known
        self._leases = Leases(instance, flow.id)
        self._triggering = Leases(instance, f"{flow.id}:triggers")

    @contextmanager
    def driving(self, run_id: str) -> Iterator[None]:
        """Leases the flow for the run, and shows that it is alive, until the block ends.

        Called in the process of a run of the flow's own, around all that it does.
        """
        run = self._instance.get_run_by_id(run_id)
        flow_ids = run.tags.get(FLOWS, "").split(",") if run else []
        flows = ",".join(sorted({self._flow.id, *filter(None, flow_ids)}))
        with self._leases.driving(run_id, {FLOWS: flows, MANIFEST: self._flow.version}):
            yield

    def triggering(self, run_id: str) -> AbstractContextManager[None]:
        """Shows that the run is alive while one of its triggers runs; the flow is not leased."""
        return self._triggering.driving(run_id, {})

    def other(self, run_id: str) -> dg.DagsterRun | None:
        """A live run of the flow that was there first; asked once, by a run that has leased it."""
        records = self._records()
        own = next((r.create_timestamp for r in records if r.dagster_run.run_id == run_id), None)
        for record in records:
            run = record.dagster_run
            earlier = own is None or (record.create_timestamp, run.run_id) < (own, run_id)
            if run.run_id != run_id and earlier and self._drives(record):
                return run
        return None

    def live(self) -> dg.DagsterRun | None:
        """A run that works on the flow or is about to; dead ones are reported as failed."""
        return next(self.all_live(), None)

    def all_live(self) -> Iterator[dg.DagsterRun]:
        """Every such run, newest first; one that is at its triggers counts."""
        for record in self._records():
            run = record.dagster_run
            own = self._leases.is_held(run) or run.job_name == job_name(self._flow)
            leases = self._triggering if self._triggering.is_held(run) else self._leases
            if own and not leases.end_if_dead(record):
                yield run

    def on(self) -> dg.DagsterRun | None:
        """The run that works on the flow right now; dead ones are reported as failed."""
        return next((r.dagster_run for r in self._records() if self._drives(r)), None)

    def failures(self) -> Sequence[dg.RunRecord]:
        """The latest runs of the flow's job since the last one that did not fail, newest first."""
        return failed_since(self._instance, dg.RunsFilter(job_name=job_name(self._flow)))

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

    def _records(self) -> Sequence[dg.RunRecord]:
        return going(self._instance) if self._known is None else self._known

    def _drives(self, record: dg.RunRecord) -> bool:
        return self._leases.is_held(record.dagster_run) and not self._leases.end_if_dead(record)
