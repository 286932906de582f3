"""The `DataFlowCron` kind: its spec, which is that of a `DataFlow` with a schedule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, Field

from dataflow_assets.errors import Finding
from dataflow_assets.errors.likely_names import did_you_mean
from dataflow_assets.flow import mangle
from dataflow_assets.languages.common.documents import Document, Path
from dataflow_assets.languages.dataflow import model
from dataflow_assets.schedules.cron import CronTimes
from dataflow_assets.schedules.schedule import ConcurrencyPolicy, Schedule
from dataflow_assets.schedules.trigger import Trigger
from dataflow_assets.spec import Addition, Hint, Spec

KIND = "DataFlowCron"
_KEPT = Hint("Dagster keeps the runs, and all alike: the job `retention` says for how long")
_NO_LANE = "has no effect: runs of the schedule drive the flow, and no lane does"


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, OSError, ValueError):  # no zone, a folder of zones, or no name
        from zoneinfo import available_timezones

        advice = did_you_mean(name, sorted(available_timezones()))
        raise ValueError(f"is not a time zone such as Europe/Berlin or UTC{advice}") from None
    return name


class CronFields(Spec):
    """The schedule, beside the fields of a `DataFlow`.

    Each tick of the schedule is a run that reads up to the newest record at its start, and then
    runs the triggers.
    """

    schedule: CronTimes
    """A cron expression of five fields, such as `0 3 * * *`: minute, hour, day of the month, month,
    day of the week. A sixth one in front, the seconds, must be 0."""
    time_zone: Annotated[str, Addition(), AfterValidator(_zone)] = "UTC"
    """The IANA name of the zone in which `schedule` is meant. A time that its clocks skip is the
    first one after the gap; of one that they show twice, the later counts."""
    concurrency_policy: ConcurrencyPolicy = "Forbid"
    """When a tick comes while a run of the flow is not over, its triggers included. `Forbid`: the
    tick is skipped. `Replace`: the run ends after its commit, without its triggers, and the new one
    begins. `Allow`: both go on; the new one reads once the other has read, because no two runs
    drive one flow, and their triggers may overlap."""
    starting_deadline_seconds: Annotated[int | None, Field(ge=0)] = None
    """A tick that comes later than that is skipped. Of several ticks that were missed, the last one
    alone starts a run."""
    suspend: bool | None = None
    """`true`: ticks are skipped. A run that was started goes on; others may be started by hand."""
    successful_jobs_history_limit: Annotated[int | None, _KEPT] = Field(default=None, ge=0)
    """How many runs are kept that succeeded."""
    failed_jobs_history_limit: Annotated[int | None, _KEPT] = Field(default=None, ge=0)
    """How many runs are kept that failed."""
    triggers: tuple[Trigger, ...] = ()
    """What runs after a run of the flow that succeeded: one after another, until one fails."""
    on_failure: Annotated[tuple[Trigger, ...], Addition()] = ()
    """What runs after a run that failed, or whose trigger failed: one after another. Not after a
    run that was cancelled or replaced."""


class CronSpec(model.DataFlowSpec, CronFields):
    """The flow and its schedule."""


class CronManifest(model.Manifest):
    """The document."""

    kind: Literal["DataFlowCron"]  # type: ignore[assignment]
    """`DataFlowCron`."""
    spec: CronSpec
    """What the flow does, and when."""


def schedule(manifest: model.Manifest) -> Schedule | None:
    """The schedule of a manifest; a `DataFlow` has none."""
    spec = manifest.spec
    if not isinstance(spec, CronSpec):
        return None
    return Schedule(
        spec.schedule,
        spec.time_zone,
        spec.concurrency_policy,
        spec.starting_deadline_seconds,
        bool(spec.suspend),
        spec.triggers,
        spec.on_failure,
    )


def findings(document: Document, manifest: model.Manifest) -> Iterator[Finding]:
    """Finds fields of a `DataFlowCron` that do not fit each other."""
    spec = manifest.spec
    if not isinstance(spec, CronSpec):
        return
    if spec.replicas > 1:
        message = f"must be at most 1: a {KIND} has one run at a time; allowed: 0, 1"
        yield document.finding(("spec", "replicas"), message)
    for key, triggers in (("triggers", spec.triggers), ("onFailure", spec.on_failure)):
        yield from _same_names(document, ("spec", key), triggers)


def _same_names(document: Document, path: Path, triggers: Sequence[Trigger]) -> Iterator[Finding]:
    names: dict[str, int] = {}
    for index, trigger in enumerate(triggers):
        first = names.setdefault(mangle(trigger.label(index)), index)
        if first != index:
            message = f"is the name of trigger {first}, too, as Dagster writes it: rename one"
            yield document.finding((*path, index, "name"), message)


def notes(document: Document, manifest: model.Manifest) -> Iterator[Finding]:
    """A note at each field that only flows of lanes have a use for."""
    if isinstance(manifest.spec, CronSpec):
        unused = [path for path in model.OF_LANES if document.get(*path) is not None]
        yield from (document.finding(path, _NO_LANE, key=True) for path in unused)
