"""From an object, its flow and what Dagster knows of that to the status of the object."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from dataflow_assets.assets.drive_states import ERROR, STOPPED
from dataflow_assets.assets.standings import ScheduledRuns, Standing
from dataflow_assets.errors import Finding
from dataflow_assets.flow import Flow
from dataflow_assets.kubernetes.objects import CustomResource
from dataflow_assets.kubernetes.status import (
    Condition,
    CronStatus,
    MaintenanceStatus,
    Phase,
    Status,
)
from dataflow_assets.schedules.schedule import Schedule

_WORKING = frozenset({"Running", "Completed"})
MOST_CHARACTERS = 1000  # of a message: an Event takes 1024 bytes
INVALID = "Invalid"
_IDLE = "no run drives it now: one is started when there is something new"
_NEVER = "no run has stored anything yet: one is started when there is something to read"
_SUSPENDED = "Processor suspended manually"
_SCALED = "Processor scaled to zero replicas"
_WINDOW = "Processor paused for scheduled maintenance window"
_UNREAD = "its manifest has not been read yet"


def describe(
    one: CustomResource,
    flow: Flow | None,
    findings: Sequence[Finding],
    standing: Standing,
    now: datetime,
) -> Status:
    """Returns the status that an object is to have.

    Args:
        one: the object as the API server has it: its conditions keep the time of their last change.
        flow: of its manifest; None where that has mistakes.
        findings: these mistakes.
        standing: what Dagster knows of the flow.
        now: the time at which it is to be true.
    """
    phase, message = _phase(one, flow, findings, standing, now)
    mistakes = _mistakes(findings)
    resolved = Condition(
        type="SpecResolved",
        status="False" if findings else "True" if flow else "Unknown",
        reason=INVALID if findings else "Resolved" if flow else "Unread",
        message=mistakes,
    )
    ready: Literal["True", "False"] = "True" if phase in _WORKING else "False"
    conditions = [Condition(type="Ready", status=ready, reason=phase, message=message), resolved]
    status = Status(
        phase=phase,
        message=message,
        observed_generation=one.generation,
        processed_count=standing.rows,
        error_count=standing.rejected,
        last_processed_time=_to_seconds(standing.committed_at),
        maintenance_status=_maintenance(one, flow, now),
        conditions=tuple(_since(condition, one, now) for condition in conditions),
    )
    return _with_runs(status, standing.runs) if flow and flow.schedule else status


def _with_runs(status: Status, runs: ScheduledRuns) -> CronStatus:
    return CronStatus(
        **dict(status),
        last_schedule_time=_to_seconds(runs.at),
        last_successful_time=_to_seconds(runs.succeeded),
        last_failed_time=_to_seconds(runs.failed),
        currentRunID=runs.current or None,
    )


def _to_seconds(at: datetime | None) -> datetime | None:
    """Kubernetes writes times in seconds."""
    return at.astimezone(UTC).replace(microsecond=0) if at else None


def _phase(
    one: CustomResource,
    flow: Flow | None,
    findings: Sequence[Finding],
    standing: Standing,
    now: datetime,
) -> tuple[Phase, str]:
    """Phases and, where it has them, messages are those of the DataFlow Operator."""
    if one.is_deleted:
        return "Stopped", "the object is being deleted; rows and checkpoint stay"
    if findings:
        return "Error", _mistakes(findings)
    if flow is None:
        return "Pending", _UNREAD
    if flow.suspended:
        return "Stopped", _SUSPENDED if _is_suspended(one) else _SCALED
    if reason := flow.pause_reason(now):
        return "Stopped", f"{_WINDOW}: {reason}"
    if standing.state is not None:
        phases: dict[str, Phase] = {ERROR: "Error", STOPPED: "Stopped"}
        return phases.get(standing.state.name, "Running"), _cut(standing.state.text)
    if flow.schedule is not None:
        return _phase_between_runs(flow.schedule, standing.runs, now)
    return ("Pending", _NEVER) if standing.rows is None else ("Running", _IDLE)


def _phase_between_runs(
    schedule: Schedule, runs: ScheduledRuns, now: datetime
) -> tuple[Phase, str]:
    if runs.current:
        return "Running", f"/runs/{runs.current} is active"
    if schedule.suspended:
        return "Stopped", "suspend is true: no tick starts a run"
    tick = f"the next run starts at {schedule.after(now):%Y-%m-%d %H:%M %Z}"
    if runs.failed and (runs.succeeded is None or runs.failed > runs.succeeded):
        return "Failed", f"the last run failed; {tick}"
    return ("Completed" if runs.succeeded else "Pending"), tick


def _mistakes(findings: Sequence[Finding]) -> str:
    """Without files and lines, which are those of a file that nobody has written."""
    return _cut("; ".join(f"{finding.path}: {finding.message}" for finding in findings))


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 3]}..."


def _maintenance(one: CustomResource, flow: Flow | None, now: datetime) -> MaintenanceStatus | None:
    if not (one.document.get("spec") or {}).get("maintenance"):
        return None
    suspended, window = _is_suspended(one), flow.maintenance if flow else None
    if window is None:
        return MaintenanceStatus(suspended=suspended)
    return MaintenanceStatus(
        suspended=suspended,
        in_maintenance=window.is_open(now) and not suspended,
        next_maintenance_time=window.next_start(now),
        last_maintenance_time=window.last_start(now),
    )


def _is_suspended(one: CustomResource) -> bool:
    block = (one.document.get("spec") or {}).get("maintenance") or {}
    return block.get("suspended") is True


def _since(condition: Condition, one: CustomResource, now: datetime) -> Condition:
    """The condition with the time at which its status became what it is."""
    current: dict[str, Any] = {
        each.get("type"): each for each in one.status.get("conditions") or ()
    }
    before = current.get(condition.type, {})
    same = before.get("status") == condition.status and before.get("lastTransitionTime")
    since = datetime.fromisoformat(same) if same else now.replace(microsecond=0)
    update = {"last_transition_time": since, "observed_generation": one.generation}
    return condition.model_copy(update=update)
