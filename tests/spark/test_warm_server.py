"""The warm server: one for all, ended when nobody uses it, never lost sight of, never waited for.

A process that only listens is in its place: it starts at once, and is silent as a server is that
was stopped.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from dataflow_assets.errors import TransientError
from dataflow_assets.spark import connect, lease, system, warm_server
from dataflow_assets.spark.lease import SparkLease
from dataflow_assets.spark.server import SparkConnect
from dataflow_assets.spark.session import Spark, SparkSettings
from tests import ROOT
from tests.stand_in import listens, until

HOLD = """
import sys
from pathlib import Path
from dataflow_assets.spark.lease import SparkLease
lease = SparkLease(Path(sys.argv[1]))
print("held", flush=True)
input()
"""
START = """
import sys
from pathlib import Path
from dataflow_assets.spark import warm_server
from dataflow_assets.spark.server import SparkConnect
from tests.stand_in import listens
warm_server.folder = lambda: Path(sys.argv[1])
warm_server.LOOK_SECONDS = 1
SparkConnect.command = lambda self: listens(self.ports["connect"], 600)
warm_server.share()
"""
# Fails at the first look, as in an environment that is just being rebuilt.
REBUILT = '#!/bin/sh\n[ -e {mark} ] && exec {python} "$@"\ntouch {mark}\nexit 1\n'


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "server"
    monkeypatch.setattr(warm_server, "folder", lambda: folder)
    monkeypatch.setattr(warm_server, "LOOK_SECONDS", 1)
    monkeypatch.setattr(SparkConnect, "command", lambda self: listens(self.ports["connect"]))
    folder.mkdir()
    yield folder
    warm_server.stop()
    until(lambda: not _watched(folder))  # it ends with its server


def test_the_warm_server_is_one_for_all_and_ends_when_nobody_uses_it(here: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: warm_server.share(), range(2))
    assert (first.pid, first.remote) == (second.pid, second.remote)
    _age(here)
    until(lambda: warm_server.running(here) is None)
    assert not first.running


def test_the_watch_looks_until_the_server_has_ended(here: Path) -> None:
    server = warm_server.share()
    with SparkLease(here):
        for _ in range(2):
            _age(here)
            until(lambda: _age_of(here) < 60)  # it has looked and found that the server is used
            assert server.running
    _age(here)
    until(lambda: not server.running)
    until(lambda: not _watched(here))


def test_the_watch_goes_on_after_a_look_that_failed(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark, python = tmp_path / "failed", tmp_path / "python"
    python.write_text(REBUILT.format(mark=mark, python=sys.executable))
    python.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", str(python))
        warm_server.watch(here)
    server = warm_server.share()
    _age(here)
    until(lambda: not server.running)
    assert mark.exists()


def test_a_watch_that_is_gone_is_renewed_by_who_comes_next(here: Path) -> None:
    warm_server.share()
    (watch,) = _watches(here)
    warm_server.share()
    assert _watches(here) == [watch]
    for process in (watch, *watch.children(recursive=True)):
        process.kill()
    until(lambda: not _watched(here))
    warm_server.share()
    (renewed,) = _watches(here)
    assert renewed != watch


def test_a_server_whose_start_was_killed_does_not_hold_up_the_next_run(here: Path) -> None:
    left = _killed_in_its_start(here)
    server = warm_server.share()
    assert server.running
    assert not system.alive(left)


def test_a_server_whose_start_was_killed_is_ended_by_its_watch(here: Path) -> None:
    left = _killed_in_its_start(here)
    _age(here)
    until(lambda: not system.alive(left))


def test_who_holds_a_lease_keeps_the_server_until_its_process_ends(here: Path) -> None:
    server = warm_server.share()
    with _process(HOLD, here) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        _age(here)
        assert not warm_server.end_unused(here, 60)
        assert _age_of(here) < 60
        holder.kill()
    assert not warm_server.end_unused(here, 60)  # it was used a moment ago
    assert server.running
    _age(here)
    assert warm_server.end_unused(here, 60)
    assert not server.running


def test_leases_are_shared_and_the_last_use_counts(here: Path) -> None:
    server = warm_server.share()
    with SparkLease(here) as first, SparkLease(here):
        first.close()
        first.close()
        assert not warm_server.end_unused(here, 0)
        assert server.running
        _age(here)
    assert _age_of(here) < 60
    assert warm_server.end_unused(here, 0)
    assert not server.running


def test_a_silent_server_is_ended_and_another_one_takes_its_place(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "JOIN_SECONDS", 0.5)
    silent = warm_server.share()
    spark = Spark(SparkSettings("connect"))
    with pytest.raises(TransientError, match="no Spark session at connect: no answer within"):
        spark.session()  # the next one is as silent here
    spark.close()
    assert not silent.running
    successor = warm_server.running(here)
    assert successor is not None
    assert successor.remote == silent.remote
    warm_server.end_silent(silent)  # by another run, which has seen the same
    assert successor.running


def test_a_silent_server_elsewhere_is_reported_and_left_alone(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "JOIN_SECONDS", 0.5)
    server = warm_server.share()
    with pytest.raises(TransientError, match=f"{server.remote}: no answer within"):
        Spark(SparkSettings(server.remote)).session()
    assert server.running
    assert warm_server.running(here) is not None


def _killed_in_its_start(here: Path) -> psutil.Process:
    with _process(START, here) as starter:
        until(lambda: _servers(here))
        server = min(_servers(here), key=psutil.Process.create_time)
        starter.kill()
    assert warm_server.running(here) is None
    return server


def _process(code: str, here: Path) -> subprocess.Popen[str]:
    command, pipe = [sys.executable, "-c", code, str(here)], subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)


def _servers(here: Path) -> list[psutil.Process]:
    return [each for each in psutil.process_iter() if _of(each, here / "spark")]


def _of(process: psutil.Process, folder: Path) -> bool:
    try:
        return Path(process.cwd()) == folder
    except psutil.Error:
        return False


def _watches(here: Path) -> list[psutil.Process]:
    """The shells that watch a folder, without what they are running just now.

    What a shell runs is a shell of the same words until it has begun.
    """
    asked = psutil.process_iter(["cmdline", "ppid"])
    shells = [each for each in asked if str(here) in _words(each) and _words(each)[0] == "sh"]
    pids = {each.pid for each in shells}
    return [each for each in shells if each.info["ppid"] not in pids]


def _words(process: psutil.Process) -> list[str]:
    return process.info["cmdline"] or [""]


def _watched(here: Path) -> bool:
    with (here / "watch").open("a") as lock:
        return not system.take_lock(lock)


def _age(folder: Path) -> None:
    long_ago = time.time() - 7200
    os.utime(folder / lease.NAME, (long_ago, long_ago))


def _age_of(folder: Path) -> float:
    return time.time() - (folder / lease.NAME).stat().st_mtime
