"""What chaos has done, as a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import psutil

from tests import ROOT
from tests.stress.chaos_clock import ByTheClock
from tests.stress.chaos_kills import HOSTED, STEPS
from tests.stress.chaos_kills import KINDS as RANDOM
from tests.stress.chaos_model import Model
from tests.stress.chaos_narrowed import NARROWED
from tests.stress.chaos_pgbench import Sent

KINDS = (*RANDOM, *HOSTED, *STEPS, NARROWED)
RESULT = ROOT / "docs/evidence/chaos.md"
PAGE = """# Chaos

{date}, commit {head}, by `make chaos`: {met} kills and pauses that met running work, with seed
{seed}, in {minutes:.0f} minutes on {cores} cores; {missed} others met none and do not count. A kill
counts when the driver was between the begin of a micro-batch and its report; of a worker, when
Spark lost a task by it. A pause counts when a second driver had taken over and stored records
before the first, or a task of the first, was let go on. Tasks that write to Trino are too short to
be met by chance: there a `step` is a kill of driver and task at one of the sink's named steps.

After every {every} of them the whole target was compared with a model: every record once, each
value, and the order of each partition (append); each key as its last record left it (upsert).

| sink | {kinds} | all |
|---|{rules}---|
{kills}

`broker` is the source's server, `database` the sink's; for the sink `kafka`, and for
`postgresql-cdc`, both are one. `postgresql-cdc pgbench` is a database of four tables under
pgbench's own transactions, to which columns are added meanwhile, and whose accounts are deleted,
inserted again and given other keys: its records are transactions, and it was compared with its copy
row for row, with the clients stopped. `connector` is the process that runs a connector of Kafka
Connect for the flow.

In the modes `poison` some records hold an element of an array that their column does not take:
each must stand once among the rejected records, and all others in the table. In `seats` rows
exchange the values of a unique column, in an order that is legal record by record. In
`postgresql-cdc narrowed` something is left out of the publication and put back, while the driver
runs or is dead: the flow must stop and say how its tables are loaded again, and the copy must be
whole after that.

| sink | records | updates | deletes | lost | doubled | wrong values | wrong order |
|---|---|---|---|---|---|---|---|
{records}
{by_the_clock}"""
BY_THE_CLOCK = """
`postgresql-cdc pgbench` was killed by the clock (never Spark's own server) for {minutes:g} minutes,
whatever the flow was doing, while the clients went on without a pause; it was compared once, at the
end. After a barren kill the flow has committed nothing before the next one: that depends on
the load of the machine (processes that want a core; below 2 nobody waits).

| every | kills | of what | in running work | barren | next commit, median | longest | load |
|---|---|---|---|---|---|---|---|
{line}
"""


@dataclass
class Tally:
    """What was done to one sink in one of its ways."""

    mode: str
    met: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    """By kind: how long its kills took, with the recovery."""
    by_the_clock: ByTheClock | None = None
    """Kills that waited for nothing."""

    def kills(self) -> str:
        """A line of the first table."""
        return _line(self.mode, *(self.met[kind] or "-" for kind in KINDS), self.met.total())

    def clock(self) -> str:
        """A table of its own; empty where nothing was killed by the clock."""
        found = self.by_the_clock
        if found is None:
            return ""
        minutes = found.every * found.kills.total() / 60
        return BY_THE_CLOCK.format(minutes=minutes, line=found.line())

    def records(self, model: Model | Sent) -> str:
        """A line of the second; nothing is wrong in a target, else there is no page."""
        sent = [len(model.sent), model.counts["updates"], model.counts["deletes"]]
        return _line(self.mode, *sent, 0, 0, 0, 0)


@dataclass(frozen=True)
class Done:
    """All of a run of chaos."""

    tallies: Sequence[tuple[Tally, Model | Sent]]
    seed: int
    head: str
    seconds: float
    every: int

    def page(self) -> str:
        """For docs/evidence/chaos.md."""
        tallies = [tally for tally, _ in self.tallies]
        return PAGE.format(
            date=f"{datetime.now(UTC):%Y-%m-%d}",
            head=self.head,
            seed=self.seed,
            met=sum(tally.met.total() for tally in tallies),
            missed=sum(tally.missed.total() for tally in tallies),
            minutes=self.seconds / 60,
            cores=psutil.cpu_count(),
            every=self.every,
            kinds=" | ".join(KINDS),
            rules="---|" * len(KINDS),
            kills="\n".join(tally.kills() for tally in tallies),
            records="\n".join(tally.records(model) for tally, model in self.tallies),
            by_the_clock="".join(tally.clock() for tally in tallies),
        )

    def slow(self) -> str:
        """How long a kill of each kind took, for whoever waits."""
        seconds, met, missed = Counter[str](), Counter[str](), Counter[str]()
        for tally, _ in self.tallies:
            seconds += tally.seconds
            met += tally.met
            missed += tally.missed
        each = {kind: seconds[kind] / met[kind] for kind in KINDS if met[kind]}
        lines = (f"{kind}: {took:.1f} s, {missed[kind]} met none" for kind, took in each.items())
        return "\n".join(lines)


def _line(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"
