"""kill -9 at every named step and at random moments: nothing lost, nothing doubled."""

from __future__ import annotations

import json
import random
import signal
import uuid
from contextlib import closing
from itertools import cycle
from pathlib import Path

import pytest

from tests.contract.clickhouse_drivers import Clickhouse
from tests.contract.iceberg_drivers import Iceberg, IcebergUpsert
from tests.contract.kafka_drivers import KafkaTarget
from tests.contract.postgresql_drivers import Postgresql
from tests.e2e.conftest import RealFlow
from tests.e2e.flows import Command
from tests.stress.chaos import Storm, storm
from tests.stress.chaos_kills import GENTLE
from tests.stress.chaos_modes import MODES

pytestmark = [pytest.mark.crash, pytest.mark.e2e]

# Steps of the loop are the same for every sink of a kind; the contract suite has them for each.
LOOP = {"to_postgresql", "to_iceberg"}
STEPS = [
    (fixture, step)
    for fixture, driver in (
        ("to_clickhouse", Clickhouse),
        ("to_iceberg", Iceberg),
        ("to_iceberg_upsert", IcebergUpsert),
        ("to_postgresql", Postgresql),
        ("to_kafka", KafkaTarget),
    )
    for step in driver.failpoints
    if fixture in LOOP or not step.startswith("drain.")
]


IN_TASKS = {
    "clickhouse.before-insert",
    "clickhouse.done",
    "clickhouse.inserted",
    "clickhouse.recorded",
    "clickhouse.write",
    "iceberg.staged",
    "kafka.after-commit",
    "kafka.before-commit",
    "kafka.produce",
    "postgresql.after-commit",
    "postgresql.before-commit",
    "postgresql.copy",
}
SOME = {
    "to_clickhouse": {"clickhouse.recorded", "clickhouse.inserted"},
    "to_iceberg_upsert": {"iceberg.rewritten", "iceberg.after-commit"},
    "to_iceberg": {"iceberg.staged", "iceberg.before-commit", "iceberg.after-commit"},
    "to_kafka": {"kafka.before-commit", "kafka.after-commit"},
}
"""Around what stores the rows; PostgreSQL has each step of the loop, `make test-all` all of all."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("target", sorted({target for target, _ in STEPS}))
def test_killed_at_steps_in_turn(
    target: str, request: pytest.FixtureRequest, command: Command
) -> None:
    """Each run is killed at the next step: it is the recovery of the one before.

    Driver and worker, or the driver alone, in turn; then the worker alone, at the last step inside
    a task, which the run survives.
    """
    flow: RealFlow = request.getfixturevalue(target)
    every = [step for named, step in STEPS if named == target]
    steps = [step for step in every if step in SOME.get(target, every)]
    for action, step in zip(cycle(["kill:1", "kill-driver:1"]), steps, strict=False):
        flow.produce(1_500)
        killed = command.run("run", str(flow.manifest), **_failpoint(step, action))
        assert killed.returncode == -signal.SIGKILL, (step, killed.stderr)
    for step in ["", *[step for step in every if step in IN_TASKS][-1:]]:
        flow.produce(100)
        apart = _failpoint(step, "kill-task:1") if step else {}
        again = command.run("run", str(flow.manifest), **apart)
        assert again.returncode == 0, (step, again.stderr)
        flow.expect_everything_once()


@pytest.mark.full
@pytest.mark.parametrize(("target", "step"), STEPS)
def test_killed_at_a_step(
    target: str, step: str, request: pytest.FixtureRequest, command: Command
) -> None:
    """Driver and worker the first time the step is reached, then the driver, then the worker."""
    flow: RealFlow = request.getfixturevalue(target)
    flow.produce(3_000)
    for action in ("kill:1", "kill-driver:2"):
        killed = command.run("run", str(flow.manifest), **_failpoint(step, action))
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    flow.produce(200)
    apart = _failpoint(step, "kill-task:1") if step in IN_TASKS else {}
    again = command.run("run", str(flow.manifest), "--json", **apart)
    assert again.returncode == 0, again.stderr
    flow.expect_everything_once()
    assert json.loads(again.stdout.splitlines()[-1])


def _failpoint(step: str, action: str) -> dict[str, str]:
    token = uuid.uuid4().hex
    return {"DATAFLOW_FAILPOINT": f"{step}:{action}", "DATAFLOW_FAILPOINT_TOKEN": token}


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", MODES)
def test_killed_at_random_moments(
    mode: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """`make chaos` in small: values and order are compared.

    Servers that others use are not killed here. Every named step is in the tests above.
    """
    seed = random.randrange(1 << 30)
    request.node.add_report_section("call", "seed", f"{mode}: {seed}")
    with closing(Storm(mode, request, tmp_path, seed)) as given:
        own = [kind for kind in given.target.kinds if "database" not in kind]
        storm(given, own[:2] or given.chance.sample(GENTLE, 2), 2)
