"""A server that is meant to outlive whoever started it: found again, however its start ended."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import devservers
from dataflow_assets.spark import detached
from dataflow_assets.spark.system import HOLDER, alive, take_lock
from tests import ROOT
from tests.stand_in import StandIn, known, until

START = """
import sys
from pathlib import Path
import devservers
others = dict.fromkeys(("kafka", "seaweedfs", "clickhouse"), False)
devservers.up(Path(sys.argv[1]), progress=lambda _: None, **others)
"""


def test_a_process_that_leaves_a_server_behind_ends_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "always::ResourceWarning", "-c", START, str(tmp_path)]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert devservers.read(tmp_path).postgresql is not None
    finally:
        devservers.down(tmp_path, progress=lambda _: None)
    assert devservers.read(tmp_path).postgresql is None


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    detached.down(tmp_path, known(tmp_path), lambda _: None)


def test_another_process_finds_the_server_and_starts_no_second_one(folder: Path) -> None:
    with _starter(folder, after=0) as starter:
        assert starter.wait(30) == 0
    said: list[str] = []
    found = detached.running(folder, known(folder))[StandIn.name]
    again = detached.up(folder, known(folder), {StandIn.name}, said.append)[StandIn.name]
    assert (again.pid, again.ports, said) == (found.pid, found.ports, [])
    detached.down(folder, known(folder), said.append)
    assert said == ["stand-in stopped"]
    assert detached.running(folder, known(folder)) == {}
    assert not found.running


def test_an_interrupt_waits_for_the_start_and_its_server_is_noted(folder: Path) -> None:
    with _starter(folder, after=2) as starter:
        server = _launched(starter)
        time.sleep(0.2)
        starter.send_signal(signal.SIGINT)
        assert starter.wait(30) != 0
    assert detached.running(folder, known(folder))[StandIn.name].pid == server.pid


@pytest.mark.parametrize("after", [0.5, 600], ids=["ready later", "never ready"])
def test_a_server_whose_start_was_killed_gives_way_to_the_next_one(
    folder: Path, after: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StandIn, "stop_timeout", 200)
    left = _left_behind(folder, after)
    began = time.monotonic()
    server = detached.up(folder, known(folder), {StandIn.name}, lambda _: None)[StandIn.name]
    assert time.monotonic() - began < StandIn.stop_timeout / 2
    assert not alive(left)
    assert server.running
    assert detached.running(folder, known(folder))[StandIn.name].pid == server.pid


def test_down_ends_a_server_whose_start_was_killed(folder: Path) -> None:
    left = _left_behind(folder, 600)
    detached.down(folder, known(folder), lambda _: None)
    assert not alive(left)


def test_a_server_that_was_killed_with_its_start_before_it_noted_itself_is_found(
    folder: Path,
) -> None:
    lock_file = folder / StandIn.name / ".lock"
    lock_file.parent.mkdir()
    with lock_file.open("a") as lock:
        assert take_lock(lock)
        late = ["sh", "-c", f"sleep 1; {HOLDER}", str(lock_file), "sleep", "60"]
        left = subprocess.Popen(late, pass_fds=[lock.fileno()], start_new_session=True)
    server = detached.up(folder, known(folder), {StandIn.name}, lambda _: None)[StandIn.name]
    assert left.wait(5) != 0
    assert server.running


def test_a_stranger_with_the_number_that_a_lock_notes_is_left_alone(folder: Path) -> None:
    left = _left_behind(folder, 600)
    lock = folder / StandIn.name / ".lock"
    noted = lock.read_text()
    left.kill()
    until(lambda: not alive(left))
    with subprocess.Popen(["sleep", "60"]) as stranger:
        lock.write_text(noted.replace(str(left.pid), str(stranger.pid), 1))
        detached.up(folder, known(folder), {StandIn.name}, lambda _: None)
        assert stranger.poll() is None
        stranger.kill()


def _left_behind(folder: Path, after: float) -> psutil.Process:
    """A server whose start was killed as soon as its process was there."""
    with _starter(folder, after) as starter:
        server = _launched(starter)
        starter.kill()
    assert detached.running(folder, known(folder)) == {}
    return server


def _starter(folder: Path, after: float) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.stand_in", str(folder), str(after)]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)


def _launched(starter: subprocess.Popen[bytes]) -> psutil.Process:
    starting = psutil.Process(starter.pid)
    until(starting.children)
    return starting.children()[0]
