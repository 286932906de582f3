"""kill -9 at every named step and at random moments: nothing lost, nothing doubled."""

from __future__ import annotations

import json
import random
import signal
import time
import uuid
from pathlib import Path

import pytest

from tests.chaos import Storm, sinks, storm
from tests.contract.clickhouse_sink import Clickhouse
from tests.contract.kafka_target import KafkaTarget
from tests.contract.real_drivers import Iceberg, IcebergUpsert, Postgresql
from tests.e2e.conftest import RealFlow
from tests.e2e.flows import Command

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


@pytest.mark.parametrize(("target", "step"), STEPS)
def test_killed_at_a_step(
    target: str, step: str, request: pytest.FixtureRequest, command: Command
) -> None:
    flow: RealFlow = request.getfixturevalue(target)
    flow.produce(3_000)
    failpoint = {
        "DATAFLOW_FAILPOINT": f"{step}:kill:2",
        "DATAFLOW_FAILPOINT_TOKEN": uuid.uuid4().hex,
    }
    killed = command.run("run", str(flow.manifest), **failpoint)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    again = command.run("run", str(flow.manifest), "--json")
    assert again.returncode == 0, again.stderr
    flow.expect_everything_once()
    assert json.loads(again.stdout.splitlines()[-1])


@pytest.mark.parametrize("sink", sinks())
def test_killed_at_random_moments(
    sink: str, request: pytest.FixtureRequest, command: Command, tmp_path: Path
) -> None:
    """`make chaos` in small; servers that others use are not killed here."""
    seed = random.randrange(1 << 30)
    request.node.add_report_section("call", "seed", str(seed))
    given = Storm(sink, request, command, tmp_path)
    storm(given, random.Random(seed), 3, ["driver", "workers"])


def test_an_upsert_killed_at_random_moments(to_iceberg_upsert: RealFlow, command: Command) -> None:
    """Every key is changed many times; the last of its records stands there in the end."""
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    for _ in range(3):
        to_iceberg_upsert.produce(2_000)
        process = command.start("run", str(to_iceberg_upsert.manifest))
        time.sleep(chance.uniform(1.0, 8.0))
        process.kill()
        process.communicate()
    last = command.run("run", str(to_iceberg_upsert.manifest))
    assert last.returncode == 0, f"seed {seed}: {last.stderr}"
    to_iceberg_upsert.expect_everything_once()
