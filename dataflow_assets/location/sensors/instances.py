"""The Dagster instance of a tick, opened once for all ticks of a code server.

Dagster opens one for each tick that asks for it. On SQLite that takes a third of what a tick of
this location costs: each time the storages compare their tables with Dagster's code.

A module of its own because the sensors `ingest` and `lag` share the one open instance.
"""

import threading

import dagster as dg

_lock = threading.Lock()
_opened: list[dg.DagsterInstance] = []


def instance_of(context: dg.SensorEvaluationContext) -> dg.DagsterInstance:
    """The instance of the tick; another one only where the tick comes from another Dagster."""
    ref = context.instance_ref
    if ref is None:
        return context.instance  # a test's own, which cannot be opened twice
    with _lock:
        if not _opened or _opened[0].get_ref() != ref:
            _opened[:] = [dg.DagsterInstance.from_ref(ref)]
        return _opened[0]


def location_name(context: dg.SensorEvaluationContext) -> str:
    """The name of the location in Dagster; empty in tests that tick by hand."""
    origin = context.code_location_origin
    return origin.location_name if origin else ""
