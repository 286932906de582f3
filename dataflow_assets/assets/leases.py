"""Leases on flows and lanes: the run says so in its tags, and whether it is alive can be told.

A lease names the run and its process. Of a process that cannot be looked at from here, signs of
life are kept in Dagster's storage.
"""

import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import dagster as dg

from dataflow_assets.assets.drivers import FlowDriver
from dataflow_assets.assets.heartbeat import SILENT_SECONDS, Heartbeat
from dataflow_assets.sdk.repeating import repeat

DRIVES = "dataflow/drives"  # "true": finds the runs of flows and lanes among everything else
DRIVER = "dataflow/driver"  # with what is driven behind it: which run drives it, and its process
ERROR = "dataflow/error"
LIVE = [
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
COMING = [dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED]
NOT_ENDED = [*LIVE, dg.DagsterRunStatus.NOT_STARTED]
WRITES = 20  # until a lease stands, however many steps of the run write tags at the same time
PART_SECONDS = 0.1  # the longest between two of them: writers that meet part
LOOK_SECONDS = 5.0  # after which a lease that was overwritten later is made again

Tags = Mapping[str, str]

log = logging.getLogger(__name__)


def going(instance: dg.DagsterInstance) -> Sequence[dg.RunRecord]:
    """Every run that drives a flow or a lane, or is about to, newest first.

    One question to Dagster's storage, asked by the sensors `ingest` and `lag` with each tick and by
    the run of a lane every two seconds: runs that have ended are not read.
    """
    filters = dg.RunsFilter(statuses=[*LIVE, *COMING], tags={DRIVES: "true"})
    return instance.get_run_records(filters)


class Leases:
    """The leases on one thing: a flow by its id, or a lane."""

    def __init__(self, instance: dg.DagsterInstance, name: str) -> None:
        self._instance, self._tag = instance, f"{DRIVER}/{name}"
        self._heartbeat = Heartbeat(instance, name)

    @contextmanager
    def driving(self, run_id: str, tags: Tags) -> Iterator[None]:
        """Leases it for the run, and shows that the run is alive, until the block ends.

        Called in the process that drives. `tags` are written with the lease. Raises what Dagster's
        storage raises, before the block only.
        """
        own = {DRIVES: "true", **tags, self._tag: value(run_id, FlowDriver.here())}
        try:
            self._write(run_id, own)
            with (
                self._heartbeat.beating(run_id),
                repeat(lambda: self._try(self._renew, run_id, own), LOOK_SECONDS, "lease"),
            ):
                yield
        finally:
            # Other steps of the run may take hours, in this process or in others.
            self._try(self._write, run_id, {self._tag: "done"})

    def _try(self, act: Callable[[str, Tags], None], run_id: str, tags: Tags) -> None:
        try:
            act(run_id, tags)
        except Exception as error:  # noqa: BLE001 - what was committed is committed
            log.warning("the run's tags could not be written: %s", type(error).__name__)

    def _write(self, run_id: str, tags: Tags) -> None:
        """Until they stand: Dagster writes all tags of a run, as they were when it read them.

        So of two steps of a run that write at once, one overwrites what the other has written.
        """
        for _ in range(WRITES):
            self._instance.add_run_tags(run_id, tags)
            time.sleep(random.random() * PART_SECONDS)  # noqa: S311 - no secret
            if self._stands(run_id, tags):
                return

    def _renew(self, run_id: str, tags: Tags) -> None:
        if not self._stands(run_id, tags):
            self._write(run_id, tags)

    def _stands(self, run_id: str, tags: Tags) -> bool:
        run = self._instance.get_run_by_id(run_id)
        return run is None or run.tags.get(self._tag) == tags[self._tag]

    def is_held(self, run: dg.DagsterRun) -> bool:
        return run.status in LIVE and self._driver(run) is not None

    def _driver(self, run: dg.DagsterRun) -> FlowDriver | None:
        """The process that drives it in this very run; tags of an earlier one are copied."""
        whose, _, driver = run.tags.get(self._tag, "").partition(" ")
        return FlowDriver.parse(driver) if whose == run.run_id else None

    def end_if_dead(self, record: dg.RunRecord) -> bool:
        """Reports a run as failed that is dead; a crash must not block what it drove."""
        message = self.dead(record)
        if not message:
            return False
        run = self._instance.get_run_by_id(record.dagster_run.run_id)
        if run is not None and run.status in NOT_ENDED:  # else it has ended since it was read
            self._instance.add_run_tags(run.run_id, {ERROR: message})
            self._instance.report_run_failed(run, message=f"{message}; the next run continues")
        return True

    def dead(self, record: dg.RunRecord) -> str:
        """Why the run counts as dead; empty when it does not.

        Its process is gone; or nobody can look at its process, or it never said which one it is,
        and nothing was heard of it for long. What waits in the queue may wait.
        """
        run, driver = record.dagster_run, self._driver(record.dagster_run)
        alive = driver.alive if driver else None
        if alive or run.status not in NOT_ENDED:
            return ""
        if driver and alive is False:
            return f"its process (pid {driver.pid} on {driver.host}) is gone without a word"
        if time.time() - record.update_timestamp.timestamp() < SILENT_SECONDS:
            return ""
        if time.time() - self._heartbeat.last(run.run_id) < SILENT_SECONDS:
            return ""
        doing = f"was {run.status.value.lower()} and" if driver is None else "was driving, but"
        return f"it {doing} nothing was heard of it for {SILENT_SECONDS / 60:.0f} minutes"


def value(run_id: str, driver: FlowDriver) -> str:
    """The text of a lease. Without the run's id, a run that is started again would inherit it."""
    return f"{run_id} {driver}"


def failed_since(instance: dg.DagsterInstance, wanted: dg.RunsFilter) -> Sequence[dg.RunRecord]:
    """The latest of these runs since the last one that did not fail, newest first."""
    failure = dg.DagsterRunStatus.FAILURE
    failed: list[dg.RunRecord] = []
    for most in (1, 10):  # most often there is no failure, and one record says so
        records = instance.get_run_records(wanted, limit=most)
        ended = next((n for n, r in enumerate(records) if r.dagster_run.status != failure), None)
        failed = list(records[:ended])
        if not failed:
            break
    return failed
