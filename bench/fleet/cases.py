"""The cases of a fleet, each on servers of its own, with what is wanted of it on two cores."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import devservers
from bench.fleet import figures
from bench.fleet.backlog import Backlog, backlog
from bench.fleet.drives import INGEST, reasons, status
from bench.fleet.figures import Figure
from bench.fleet.ground import Ground
from bench.fleet.manifests import Member, members, write, write_broken
from bench.fleet.running import SETTLE, Fleet, Order, running, sender
from bench.fleet.watch import Seen
from devservers.demo.dagster_dev import Dagster

DOWN = 10
IDLE_WAIT = 480.0  # seconds within which what is not needed any more should have ended
Found = dict[str, Any]


def steady(order: Order, ground: Ground) -> Found:
    """One message a second for each flow."""
    flows = members(order.flows, ground.postgresql.dsn())
    _write(ground, flows)
    with sender(ground, flows) as sent, running(order, ground, flows, _folder(ground)) as fleet:
        served = fleet.settle()
        seen = fleet.watch.watch(order.seconds)
        unserved = fleet.tables.unserved()
        sent.stop()
        kept = fleet.finish(sent.sent)
    names = [flow.name for flow in flows]
    found = [
        *figures.ages(seen, names, 5, 15),
        _never(unserved),
        _started(served),
        *_costs(seen, 1.6, 4),
    ]
    return _result(found, seen, kept, unserved=unserved)


def idle(order: Order, ground: Ground) -> Found:
    """One message each at the start, then nothing."""
    flows = members(order.flows, ground.postgresql.dsn())
    _write(ground, flows)
    with sender(ground, flows, 1) as sent, running(order, ground, flows, _folder(ground)) as fleet:
        waited = _calm(fleet)
        seen = fleet.watch.watch(order.seconds)
        sent.stop()
        kept = fleet.finish(sent.sent)
    found = [
        *_costs(seen, 0.3, 1.5),
        Figure("share of the time with a JVM of Spark", fmean(seen.jvm), most=0),
        Figure("JVM had ended after", waited, "s"),
    ]
    return _result(found, seen, kept, slowest={})


def behind(order: Order, ground: Ground) -> Found:
    """Millions of messages of one flow appear at once; then as many of one flow alone."""
    large, *others = members(order.flows, ground.postgresql.dsn())
    _write(ground, [large, *others])
    with (
        backlog(ground.kafka.bootstrap, large.name, order.waiting) as waiting,
        sender(ground, others) as sent,
        running(order, ground, others, _folder(ground)) as fleet,
    ):
        fleet.settle()
        seen, together = _worked_off(fleet, large, waiting, order.seconds)
        sent.stop()
        kept = fleet.finish({**sent.sent, large.name: order.waiting})
    by_itself, kept_alone = _alone(order, ground)
    found = [
        *figures.ages(seen, [flow.name for flow in others], None, 30),
        Figure("backlog, rows a second", together),
        Figure("backlog alone, rows a second", by_itself),
        Figure("backlog, share of its rate alone", together / by_itself, least=0.6),
        *_costs(seen),
    ]
    return _result(found, seen, kept, kept_alone)


def broken(order: Order, ground: Ground) -> Found:
    """The database of some flows goes down, and one manifest has been broken from the start."""
    with devservers.Proxy(ground.postgresql.port) as proxy:
        few = min(DOWN, order.flows // 4)
        dsn = ground.postgresql.dsn()
        odd, *sound = members(order.flows - few, dsn)
        reached = dsn.replace(f":{ground.postgresql.port}/", f":{proxy.port}/")
        down = members(order.flows, reached)[order.flows - few :]
        flows = [*sound, *down]
        _write(ground, flows)
        write_broken(_folder(ground), odd)
        with sender(ground, flows) as sent, running(order, ground, flows, _folder(ground)) as fleet:
            served = fleet.settle()
            proxy.refuse()
            seen = fleet.watch.watch(order.seconds)
            unserved = fleet.tables.unserved()
            told = _told(fleet, down, odd)
            sent.stop()
            kept = fleet.finish(sent.sent, [flow.name for flow in down])
    names = [flow.name for flow in sound]
    found = [
        *figures.ages(seen, names, 5, 15),
        _never(unserved),
        _started(served),
        *_costs(seen, 1.6, 4),
        *told.pop("figures"),
    ]
    return _result(found, seen, kept, **told)


def _folder(ground: Ground) -> Any:
    return ground.folder / "flows"


def _write(ground: Ground, flows: Sequence[Member]) -> None:
    write(_folder(ground), ground.kafka.bootstrap, flows)
    ground.prepare(flows)


def _never(unserved: Sequence[str]) -> Figure:
    return Figure("flows never served", len(unserved), most=0)


def _started(seconds: float) -> Figure:
    """From the start of the drive: of Dagster, if it is that, and of Spark."""
    return Figure("first row of every flow after", seconds, "s")


def _costs(seen: Seen, cores: float | None = None, gib: float | None = None) -> list[Figure]:
    return [figures.cores(seen, cores), *figures.memory(seen, gib)]


def _calm(fleet: Fleet) -> float:
    """Waits until all rows are there and no JVM lives; the seconds, NaN when one still does."""
    begun = time.monotonic()
    fleet.wait(SETTLE)
    while fleet.tables.unserved() or fleet.watch.jvm():
        fleet.wait(2)
        if time.monotonic() > begun + IDLE_WAIT:
            return math.nan
    return time.monotonic() - begun


def _worked_off(
    fleet: Fleet, large: Member, waiting: Backlog, seconds: float
) -> tuple[Seen, float]:
    """Watches from the moment at which the backlog appears until it is gone; its rate."""
    progress: list[tuple[float, int]] = []

    def done() -> bool:
        progress.append((time.monotonic(), fleet.tables.consumed().get(large.name, 0)))
        return progress[-1][1] >= waiting.count

    waiting.appear()
    return fleet.watch.watch(seconds, done), figures.rate(progress)


def _alone(order: Order, ground: Ground) -> tuple[float, Found]:
    """The rate of a backlog of the same size in a folder of one flow."""
    flow, folder = Member("fleet-alone", ground.postgresql.dsn()), ground.folder / "alone"
    ground.prepare([flow])
    write(folder, ground.kafka.bootstrap, [flow])
    with (
        backlog(ground.kafka.bootstrap, flow.name, order.waiting) as waiting,
        running(order, ground, [], folder) as fleet,
    ):
        fleet.wait(SETTLE)
        _, found = _worked_off(fleet, flow, waiting, order.seconds)
        return found, fleet.finish({flow.name: order.waiting})


def _told(fleet: Fleet, down: Sequence[Member], odd: Member) -> Found:
    """Whether those that are down, and the broken one, are named with their reasons."""
    begun = time.monotonic()
    errors, complaints = status(_folder(fleet.ground))
    seconds = time.monotonic() - begun
    named = {
        flow.name: errors[f"default/{flow.name}"]
        for flow in down
        if f"default/{flow.name}" in errors
    }
    found = [
        Figure("down and named by `dataflow status`", len(named), least=len(down)),
        Figure("broken manifest named", float(f"{odd.name}.yaml" in complaints), least=1),
        Figure("`dataflow status` took", seconds, "s"),
    ]
    said = {}
    if isinstance(fleet.drive, Dagster):
        said = reasons(fleet.drive)
        count = sum(_says(said, flow) for flow in down)
        found.append(Figure("down and named by a sensor", count, least=len(down)))
    return {"figures": found, "status": named, "sensors": said}


def _says(said: Mapping[str, str], flow: Member) -> bool:
    """Whether the flow's own sensor, or the one that looks for all flows, tells of its failure."""
    own = any(flow.name.replace("-", "_") in sensor for sensor in said)
    return own or f"/{flow.name}:" in said.get(INGEST, "")


def _result(found: Sequence[Figure], seen: Seen, *kept: Found, **more: Any) -> Found:
    return {
        "figures": [figure.as_json() for figure in found],
        "by_kind": figures.by_kind(seen),
        "around": figures.around(seen),
        "slowest": figures.slowest(seen),
        "median_by_minute": figures.by_minute(seen),
        "kept": list(kept),
        **more,
        "passed": figures.passed(found, *kept),
    }
