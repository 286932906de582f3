"""The status of an object is what its manifest, its flow and Dagster say."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from dataflow_assets.assets.drive_states import DriveState
from dataflow_assets.assets.standings import ScheduledRuns, Standing
from dataflow_assets.errors import Finding
from dataflow_assets.flow import Flow
from dataflow_assets.kubernetes.objects import CustomResource
from dataflow_assets.kubernetes.outcome import describe
from dataflow_assets.kubernetes.status import Status
from dataflow_assets.schedules.cron import CronTimes
from dataflow_assets.schedules.maintenance_window import MaintenanceWindow
from dataflow_assets.schedules.schedule import Schedule
from tests.dagster.flows import memory_flow
from tests.kubernetes.objects import flow, resource

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
ONE = resource(flow("s"))
MISTAKES = (
    Finding("f", 3, 4, "spec.sink.config.table", "is required"),
    Finding("f", 5, 1, "spec.sorce", "unknown key; did you mean source?"),
)


@pytest.fixture
def sound(store: Any) -> Flow:
    return memory_flow(store)


def status(
    flow_: Flow | None,
    standing: Standing | None = None,
    one: CustomResource = ONE,
    findings: tuple[Finding, ...] = (),
) -> Status:
    return describe(one, flow_, findings, standing or Standing(), NOW)


@pytest.mark.parametrize(
    ("standing", "phase", "message"),
    [
        (Standing(), "Pending", "no run has stored anything yet"),
        (Standing(rows=0), "Running", "no run drives it now"),
        (Standing(DriveState("in lane shared, 2 s behind")), "Running", "in lane shared, 2 s"),
        (Standing(DriveState("has left its lane", "Error")), "Error", "has left its lane"),
        (Standing(DriveState("its switch is off", "Stopped"), rows=3), "Stopped", "its switch is"),
        (Standing(DriveState("x" * 2000)), "Running", "xxx"),
    ],
)
def test_the_phase_of_a_sound_manifest(
    sound: Flow, standing: Standing, phase: str, message: str
) -> None:
    found = status(sound, standing)
    assert (found.phase, found.message[: len(message)]) == (phase, message)
    assert len(found.message) <= 1000
    ready, resolved = found.conditions
    assert (ready.type, ready.status, ready.reason) == ("Ready", str(phase == "Running"), phase)
    assert (resolved.type, resolved.status, resolved.reason) == ("SpecResolved", "True", "Resolved")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"replicas": 0}, "Processor scaled to zero replicas"),
        ({"maintenance": {"suspended": True}}, "Processor suspended manually"),
    ],
)
def test_a_manifest_that_suspends_its_flow(sound: Flow, spec: Any, message: str) -> None:
    suspended = replace(sound, suspended=True)
    found = status(suspended, Standing(rows=3), resource(flow("s", **spec)))
    assert (found.phase, found.message, found.processed_count) == ("Stopped", message, 3)


@pytest.mark.parametrize(
    ("suspended", "hour", "phase", "inside"),
    [(False, 12, "Stopped", True), (False, 14, "Running", False), (True, 12, "Stopped", False)],
)
def test_a_maintenance_window(
    sound: Flow, suspended: bool, hour: int, phase: str, inside: bool
) -> None:
    first = datetime(2026, 1, 31, 11, tzinfo=UTC)
    window = MaintenanceWindow(first, timedelta(hours=2), "daily", description="backup")
    paused = replace(sound, maintenance=window, suspended=suspended)
    one = resource(flow("s", maintenance={"suspended": suspended, "startTime": "..."}))
    found = describe(one, paused, (), Standing(rows=1), NOW.replace(hour=hour))
    assert found.phase == phase
    if inside:
        assert found.message == (
            "Processor paused for scheduled maintenance window: in maintenance window `backup` "
            "until 13:00 UTC"
        )
    status = found.maintenance_status
    assert status is not None
    assert (status.suspended, status.in_maintenance) == (suspended, inside)
    assert status.last_maintenance_time == first
    assert status.next_maintenance_time == first + timedelta(days=1)


def test_mistakes_are_a_condition(sound: Flow) -> None:
    found = status(None, findings=MISTAKES)
    text = "spec.sink.config.table: is required; spec.sorce: unknown key; did you mean source?"
    assert (found.phase, found.message) == ("Error", text)
    ready, resolved = found.conditions
    assert (ready.status, resolved.status, resolved.reason) == ("False", "False", "Invalid")
    assert resolved.message == text


def test_counts_and_times(sound: Flow) -> None:
    at = datetime(2026, 1, 31, 11, 59, 58, 123_456, tzinfo=timezone(timedelta(hours=1)))
    one = resource(flow("s", maintenance={"suspended": False}), generation=7)
    document = status(sound, Standing(None, 12, 3, at), one).document()
    assert document["lastProcessedTime"] == "2026-01-31T10:59:58Z"
    assert [document[key] for key in ("processedCount", "errorCount")] == [12, 3]
    assert document["observedGeneration"] == 7
    assert document["maintenanceStatus"]["suspended"] is False
    assert [each["observedGeneration"] for each in document["conditions"]] == [7, 7]
    assert status(sound, Standing()).document()["processedCount"] is None


def test_an_object_that_is_being_deleted_and_one_that_was_not_read_yet(sound: Flow) -> None:
    deleted = resource(flow("s"), deletionTimestamp="2026-01-31T00:00:00Z")
    assert status(None, one=deleted).phase == "Stopped"
    unread = status(None)
    assert (unread.phase, unread.conditions[1].status) == ("Pending", "Unknown")


def test_a_condition_keeps_the_time_since_when_it_holds(sound: Flow) -> None:
    first = status(sound, Standing(rows=1)).document()
    one = CustomResource(ONE.resource, {**ONE.document, "status": first})
    later = NOW + timedelta(hours=1)
    same = describe(one, sound, (), Standing(rows=2), later)
    assert {each.last_transition_time for each in same.conditions} == {NOW}
    error = describe(one, sound, (), Standing(DriveState("no", "Error")), later)
    assert [each.last_transition_time for each in error.conditions] == [later, NOW]


def test_the_status_of_the_operator_is_understood(sound: Flow) -> None:
    """Its conditions have no time where it has set none."""
    old = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}, {"type": "X"}]}
    one = CustomResource(ONE.resource, {**ONE.document, "status": old})
    assert describe(one, sound, (), Standing(rows=1), NOW).conditions[0].last_transition_time == NOW


TICKS = Schedule(CronTimes.parse("0 3 * * *"), "Europe/Berlin")
EARLIER, LATER = NOW - timedelta(hours=9), NOW - timedelta(hours=2)
NEXT = "the next run starts at 2026-02-01 03:00 CET"


@pytest.mark.parametrize(
    ("schedule", "runs", "phase", "message"),
    [
        (TICKS, ScheduledRuns(), "Pending", NEXT),
        (TICKS, ScheduledRuns(succeeded=LATER, failed=EARLIER), "Completed", NEXT),
        (TICKS, ScheduledRuns(succeeded=EARLIER, failed=LATER), "Failed", "the last run failed"),
        (TICKS, ScheduledRuns("a1", LATER, LATER), "Running", "/runs/a1 is active"),
        (replace(TICKS, suspended=True), ScheduledRuns(failed=LATER), "Stopped", "suspend is true"),
    ],
)
def test_a_flow_with_a_schedule(
    sound: Flow, schedule: Schedule, runs: ScheduledRuns, phase: str, message: str
) -> None:
    found = status(replace(sound, schedule=schedule), Standing(rows=1, runs=runs))
    assert (found.phase, found.message[: len(message)]) == (phase, message)
    assert found.conditions[0].status == str(phase in {"Running", "Completed"})
    document = found.document()
    assert document["currentRunID"] == (runs.current or None)
    times = [document[f"last{name}Time"] for name in ("Schedule", "Successful", "Failed")]
    assert times == [
        at and at.strftime("%Y-%m-%dT%H:%M:%SZ") for at in (runs.at, runs.succeeded, runs.failed)
    ]
