"""The switches of flows: the state of their sensors, all of them in one look."""

import os
from collections.abc import Callable, Iterable

import dagster as dg

from dataflow_assets.assets.runs import SENSOR
from dataflow_assets.flow import Flow

INGEST = "ingest"
"""The sensor that looks for all flows, and the job of lanes."""
_DECLARED = "DECLARED_IN_CODE"
_DEFAULT = "dataflow/started"
"""The key in Dagster's storage under which the location notes its DATAFLOW_START."""


def switch_name(flow: Flow) -> str:
    """The sensor of a flow, or its schedule."""
    return f"{flow.slug}_sensor" if flow.schedule is None else f"{flow.slug}_cron_schedule"


def starts_switched_on() -> bool:
    """Returns whether a flow is switched on that nobody has switched: only in the demo."""
    return os.environ.get("DATAFLOW_START") == "1"


def remember_default(instance: dg.DagsterInstance) -> None:
    """Stores whether flows that nobody has switched are on: other processes cannot know it.

    Called by the sensor `ingest` with each tick. Raises what Dagster's storage raises.
    """
    instance.daemon_cursor_storage.set_cursor_values({_DEFAULT: str(int(starts_switched_on()))})


def off(instance: dg.DagsterInstance, flows: Iterable[Flow]) -> set[str]:
    """The ids of the flows that are switched off, also where this is no process of Dagster's.

    Two questions to Dagster's storage, by `dataflow status`. Raises what the storage raises. Where
    no sensor of the location has run yet, flows that nobody has switched are not among them.
    """
    stored = instance.daemon_cursor_storage.get_cursor_values({_DEFAULT}).get(_DEFAULT)
    untouched = starts_switched_on() or stored != "0" or instance.schedule_storage is None
    states = _states(instance, untouched=untouched)
    return {flow.id for flow in flows if not states.get(switch_name(flow), untouched)}


def on(instance: dg.DagsterInstance, flows: Iterable[Flow]) -> set[str]:
    """The ids of the flows that are switched on.

    One question to Dagster's storage for all of them, by the sensor `ingest` with each tick and by
    the run of a lane every two seconds. Raises what the storage raises.
    """
    states = _states(instance, untouched=starts_switched_on())
    untouched = (
        starts_switched_on() or instance.schedule_storage is None
    )  # in tests there are no switches
    return {flow.id for flow in flows if states.get(switch_name(flow), untouched)}


def is_untouched(instance: dg.DagsterInstance, flows: Iterable[Flow]) -> bool:
    """Returns whether nobody has switched any of the flows on or off.

    One question to Dagster's storage, by the run of a lane that has found nothing to drive.
    """
    if instance.schedule_storage is None:
        return True
    states = instance.all_instigator_state()
    switched = {state.name for state in states if state.status.value != _DECLARED}
    return not any(switch_name(flow) in switched for flow in flows)


def switched_off(
    instance: dg.DagsterInstance, flow: Flow, run: dg.DagsterRun
) -> Callable[[], str | None]:
    """Returns whether the flow's switch went off under this run.

    A run that somebody asked for by hand while the switch was off goes on, and one of a schedule
    goes on in any case.
    """
    if flow.schedule is not None:
        return lambda: None
    name = switch_name(flow)
    was_on = run.tags.get(SENSOR) == INGEST or _states(
        instance, untouched=starts_switched_on()
    ).get(name, False)

    def look() -> str | None:
        if was_on and not _states(instance, untouched=starts_switched_on()).get(name, True):
            return f"its sensor {name} was switched off"
        return None

    return look


def _states(instance: dg.DagsterInstance, *, untouched: bool) -> dict[str, bool]:
    if instance.schedule_storage is None:
        return {}
    states = {state.name: state.status.value for state in instance.all_instigator_state()}
    declared = {_DECLARED: untouched}
    return {name: declared.get(status, status == "RUNNING") for name, status in states.items()}
