"""What the fleet's figures are made of, without a fleet."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from bench.fleet import figures, manifests, messages, processes
from bench.fleet.drives import _failures
from bench.fleet.figures import Figure
from bench.fleet.processes import MARK, Process, Tree
from bench.fleet.watch import Seen
from dataflow_assets.manifests.load import load

DSN = "postgresql://postgres@127.0.0.1:5432/postgres"


@pytest.mark.parametrize(
    ("values", "share", "found"),
    [
        ([7], 0.5, 7),
        ([3, 1, 2], 0.5, 2),
        (range(1, 101), 0.99, 99),
        ([1, 2], 1.0, 2),
        ([1, 2], 0, 1),
    ],
)
def test_a_quantile_is_a_value_that_was_seen(values: Any, share: float, found: float) -> None:
    assert figures.quantile(values, share) == found


def test_nothing_seen_keeps_no_bound() -> None:
    assert math.isnan(figures.quantile([], 0.5))
    assert not Figure("age", math.nan, most=5).passed
    assert not Figure("share", math.nan, least=0.6).passed
    assert Figure("age", math.nan).passed


def test_ages_are_those_of_the_flows_that_are_asked_for() -> None:
    seen = Seen(ages={"a": [1.0, 2.0], "b": [3.0], "down": [900.0]})
    middle, high, worst = figures.ages(seen, ["a", "b"], 5, 2.5)
    assert (middle.found, high.found, worst.found) == (2.0, 3.0, 3.0)
    assert middle.passed
    assert not high.passed


def test_rows_twice_and_rows_missing_are_told_apart() -> None:
    sent = {"whole": 3, "twice": 3, "short": 3, "down": 3}
    held = {"whole": (3, 3), "twice": (4, 3), "short": (2, 2), "down": (1, 1)}
    kept = figures.kept(sent, held, unfinished=["down"])
    assert (kept["doubled"], kept["missing"], kept["whole"]) == (["twice"], ["short"], 1)
    assert not kept["passed"]
    assert figures.kept({"down": 3}, {"down": (1, 1)}, ["down"])["passed"]
    assert not figures.kept({"down": 3}, {"down": (4, 3)}, ["down"])["passed"]


def test_a_rate_counts_from_the_first_look_to_the_last_commit() -> None:
    progress = [(1.0, 100), (2.0, 500), (3.0, 900), (4.0, 900), (5.0, 1_100), (9.0, 1_100)]
    assert figures.rate(progress) == pytest.approx(1_000 / 4)
    assert math.isnan(figures.rate([(0.0, 5), (1.0, 5)]))


@pytest.mark.parametrize(
    ("command", "parent", "found"),
    [
        ("java -Xmx512m -cp a.jar kafka.Kafka /tmp/server.properties", None, "broker"),
        ("java -cp spark-sql-kafka.jar org.apache.spark.deploy.SparkSubmit x", None, "spark jvm"),
        ("python -m pyspark.daemon pyspark.worker", "spark jvm", "python workers"),
        ("/cache/bin/postgres -D /tmp/data", None, "postgresql"),
        ("postgres: walwriter ", "postgresql", "postgresql"),
        ("python -m dagster dev --port 3000", None, "dagster dev"),
        ("python -m dagster code-server start", "dagster dev", "code server"),
        ("python -m dagster api grpc --socket /tmp/s", "code server", "code server"),
        ("python -m dagster_webserver --port 3000", "dagster dev", "dagster webserver"),
        ("python -m dagster._daemon run", "dagster dev", "dagster daemon"),
        ("python -c from multiprocessing.spawn import spawn_main", "code server", "run"),
        ("tail -F out", "run", "run"),
        ("python -m dataflow_assets.cli run flows --for 60", None, "run"),
        ("python -m bench.fleet.messages /tmp/order.json", None, "producer"),
        ("sh -c read", None, "other"),
        ("", "run", "run"),
    ],
)
def test_processes_are_told_apart(command: str, parent: str | None, found: str) -> None:
    words = command.split(" ") if not command.startswith("postgres:") else [command]
    assert processes.kind(words, parent) == found


def test_seconds_of_a_process_that_ended_are_not_lost_nor_counted_twice() -> None:
    server, child, grandchild = (10, 1), (11, 2), (12, 3)
    before = {
        server: Process(1, "code server", 5.0, 1.0),
        child: Process(10, "run", 4.0, 0.5),
        grandchild: Process(11, "python workers", 2.0, 0.0),
    }
    # The grandchild made another second, the child another two, and both are gone.
    after = {server: Process(1, "code server", 5.5, 1.0 + 6.0 + 0.5 + 3.0)}
    spent = processes.spent(before, after)
    assert spent["code server"] == pytest.approx(0.5)
    assert sum(spent.values()) == pytest.approx(0.5 + 2.0 + 1.0)
    assert spent["run"] == pytest.approx(3.0)


def test_another_process_with_the_same_number_starts_from_nothing() -> None:
    before = {(11, 2): Process(10, "run", 400.0, 0.0)}
    after = {(11, 9): Process(10, "run", 1.0, 0.0)}
    assert processes.spent(before, after) == {"run": 1.0}


def test_what_carries_the_mark_is_found_with_its_children_and_ended() -> None:
    mark = f"test-{os.getpid()}"
    script = "import subprocess, sys; subprocess.run(['env', '-i', 'sleep', '60'])"
    with subprocess.Popen(
        [sys.executable, "-c", script], env={**os.environ, MARK: mark}
    ) as process:
        try:
            tree = Tree(mark)
            while len(look := tree.look()) < 2:
                assert process.poll() is None
            assert process.pid in {pid for pid, _ in look}
            assert sum(each.pss for each in processes.memory(look).values()) > 1 << 20
            assert not {pid for pid, _ in Tree(mark, [process.pid]).look()} & {process.pid}
            assert len(processes.end(mark)) == 2
        finally:
            process.kill()
    assert not Tree(mark).look()


def test_manifests_are_understood_and_the_broken_one_is_named(tmp_path: Path) -> None:
    flows = manifests.members(3, DSN)
    manifests.write(tmp_path, "127.0.0.1:9092", flows)
    loaded = load([tmp_path])
    assert [flow.id for flow in loaded.flows] == [f"default/fleet-00{n}" for n in range(3)]
    assert not loaded.findings
    assert str(loaded.flows[1].branches[0].address).endswith("fleet/fleet_001")
    manifests.write_broken(tmp_path, flows[1])
    assert {Path(finding.file).name for finding in load([tmp_path]).findings} == {"fleet-001.yaml"}


def test_each_topic_gets_a_message_a_second_evenly() -> None:
    assert list(islice(messages.turns(2, None), 5)) == [
        (0.0, 0, 0),
        (0.5, 1, 0),
        (1.0, 0, 1),
        (1.5, 1, 1),
        (2.0, 0, 2),
    ]
    assert len(list(messages.turns(3, 1))) == 3


def test_sensors_say_the_newest_failure() -> None:
    ticks = [
        {"error": None, "skipReason": "run 12 is started"},
        {"error": None, "skipReason": "failed once; next try in 4 s. Last error: no route"},
        {"error": {"message": "older"}, "skipReason": None},
    ]
    sensors = [
        {"name": "down", "sensorState": {"ticks": ticks}},
        {"name": "well", "sensorState": {"ticks": ticks[:1]}},
    ]
    found = _failures(sensors)
    assert found == {"down": "failed once; next try in 4 s. Last error: no route"}
