"""What the process of a connector checks of its spool before it starts the connector."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dataflow_assets.connectors.kafka_connect import client
from dataflow_assets.connectors.kafka_connect.client import HostProcess
from dataflow_assets.connectors.kafka_connect.errors import HostFailure
from dataflow_assets.connectors.kafka_connect.host.__main__ import ConnectHost
from dataflow_assets.connectors.kafka_connect.host.protocol import ConnectOrder, Event, encode
from dataflow_assets.connectors.kafka_connect.parts import ConnectPart
from dataflow_assets.connectors.kafka_connect.spool import SCHEMA, ConnectOffset, Spool
from dataflow_assets.errors import PermanentError


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    """Three parts, the last of which is open."""
    made = Spool(tmp_path / "spool")
    with made.lock(0):
        made.begin("C", {})
        for number in (1, 2, 3):
            part = ConnectPart(number, 0, 0, 0, open=number == 3, token="0123abcd")
            made.seal(part, SCHEMA.empty_table(), {"{}": ConnectOffset(0, number)})
    return made


def order(spool: Spool, spool_id: str, position: int) -> ConnectOrder:
    """For a connector that no plugin has: the process ends when the spool is checked."""
    return ConnectOrder(
        connector="NoConnector",
        config={},
        plugins=[],
        jars=[],
        spool=str(spool.folder),
        spool_id=spool_id,
        position=position,
        tasks=1,
        heap="64m",
        plain=False,
        part_rows=1,
        part_bytes=1,
    )


def opened(given: ConnectOrder, sentence: str) -> bool:
    """Whether the driver is told that the spool is opened, before the process ends."""
    said = list[Event]()
    with pytest.raises(PermanentError, match=sentence):
        ConnectHost(given, said.append).run(threading.Event())
    return [event.event for event in said] == ["opened"]


def id_of(spool: Spool) -> str:
    state = spool.state()
    assert state is not None
    return state.id


def test_of_a_long_log_before_the_secrets_are_known_the_end_is_kept(
    spool: Spool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    script = "import sys; [print(n, file=sys.stderr) for n in range(12_000)]; input()"
    command = [sys.executable, "-c", script]
    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda _, **given: popen(command, **given))
    with caplog.at_level(logging.INFO, "dataflow_assets"):
        HostProcess(order(spool, "", 0), ()).end()
    lines = [record.getMessage() for record in caplog.records if record.name == client.__name__]
    assert (len(lines), lines[-1]) == (10_000, "NoConnector: 11999")


def check(process: HostProcess, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        process.check()
        time.sleep(0.05)


def test_a_start_may_take_longer_than_a_call(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Debezium reads the history of all tables of a database before its task has started.

    The same task may be started again, where the connector needs more of them.
    """
    opened, starting = encode(Event("opened", spool="s")), encode(Event("starting"))
    started = encode(Event("started", tasks=1))
    script = (
        f"import os, sys, time; os.write(1, {opened!r}); time.sleep(2); os.write(1, {started!r})\n"
        f"os.write(1, {starting!r}); time.sleep(2); os.write(1, {started!r})\n"
        "sys.stdin.read()"
    )
    popen, command = subprocess.Popen, [sys.executable, "-c", script]
    monkeypatch.setattr(subprocess, "Popen", lambda _, **given: popen(command, **given))
    monkeypatch.setattr(client, "_SILENT", 0.5)
    process = HostProcess(order(spool, "", 0), ())
    try:
        assert process.spool() == "s"
        check(process, 3.5)
        with pytest.raises(HostFailure, match=r"nor answered for 0\.5 seconds"):
            check(process, 30)
    finally:
        process.end()


def test_the_flow_is_not_behind_the_end_of_its_spool(spool: Spool) -> None:
    """Forgotten parts count: without them a spool that is read to its end would be refused."""
    assert opened(order(spool, id_of(spool), 3), "has the class")
    spool.forget(3)
    assert opened(order(spool, id_of(spool), 3), "has the class")


def test_an_older_copy_of_the_spool_is_refused(spool: Spool) -> None:
    older = "ends with part 3, and the flow has read part 4: the folder is an older copy"
    assert not opened(order(spool, id_of(spool), 4), older)


def test_parts_without_a_state_are_not_deleted(spool: Spool) -> None:
    (spool.folder / "state.json").unlink()
    kept = spool.parts()
    assert not opened(order(spool, "", 0), r"has parts and no state\.json")
    assert not opened(order(spool, "0" * 32, 1), "is not the one that the flow has read so far")
    assert spool.parts() == kept


def test_a_spool_of_another_flow_is_left_as_it_was(spool: Spool) -> None:
    """Its open part keeps its records, and what is not whole yet may be whole later."""
    (spool.folder / ".unfinished.parquet").touch()
    kept = sorted(spool.folder.iterdir())
    assert not opened(order(spool, "0" * 32, 1), "is not the one that the flow has read so far")
    assert sorted(spool.folder.iterdir()) == kept


@pytest.mark.parametrize("ordered", [False, True])
def test_it_ends_where_the_driver_is_gone_before_it_looks(ordered: bool, spool: Spool) -> None:
    """Something that the driver has forked holds the input open; the spool keeps it waiting."""
    module = "dataflow_assets.connectors.kafka_connect.host"
    gone = str(os.getppid())  # not its parent
    with (
        spool.lock(0),
        subprocess.Popen([sys.executable, "-m", module, gone], stdin=subprocess.PIPE) as host,
    ):
        assert host.stdin is not None
        if ordered:
            host.stdin.write(encode(order(spool, id_of(spool), 3)))
            host.stdin.flush()
        try:
            assert host.wait(30) == 0
        finally:
            host.kill()


def test_a_process_that_is_killed_is_told_of(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kernel does where the machine has no memory left."""
    script = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    popen, command = subprocess.Popen, [sys.executable, "-c", script]
    monkeypatch.setattr(subprocess, "Popen", lambda _, **given: popen(command, **given))
    process = HostProcess(order(spool, "", 0), ())
    try:
        with pytest.raises(HostFailure, match=r"killed \(SIGKILL\): the machine may have"):
            check(process, 30)
    finally:
        process.end()
