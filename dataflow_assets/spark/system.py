"""Calls to the operating system that servers need: free ports, locks, who a process is, signals."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO

import psutil

# Below the range from which the kernel takes client ports, or one of those may sit on ours at a
# restart.
PORTS = range(10_000, 22_000)
# Becomes another program, the same process, once who that is stands in the file "$0".
HOLDER = 'cat /proc/$$/stat /proc/sys/kernel/random/boot_id >"$0" && exec "$@"'


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on. Another process may take one before you do."""
    ports: set[int] = set()
    while len(ports) < count:
        port = random.choice(PORTS)  # noqa: S311 (no secret; keeps parallel sessions apart)
        if is_free(port):
            ports.add(port)
    return list(ports)


def is_free(port: int) -> bool:
    """Returns whether a server could listen there, on whatever address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def start_ticks(pid: int) -> int:
    """Clock ticks from boot to its start: with its number, who a process is until the next boot."""
    return _start_ticks(Path(f"/proc/{pid}/stat").read_text())


def find_process(pid: int, began: int) -> psutil.Process | None:
    """The process of that number with these `start_ticks`; None once it is gone."""
    try:
        process = psutil.Process(pid)
        return process if start_ticks(pid) == began and alive(process) else None
    except (psutil.NoSuchProcess, OSError):
        return None


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def take_lock(file: IO[str]) -> bool:
    """Takes the lock on an open file unless somebody has it; held until the last copy is closed."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_locked(lock: Path) -> bool:
    """Returns whether somebody has the lock on a file, which need not be there."""
    if not lock.exists():
        return False
    with lock.open("a") as file:
        return not take_lock(file)


def holder(lock: Path) -> dict[str, int] | None:
    """The process that noted itself in a lock since this boot, as `HOLDER` has it, or None."""
    try:
        stat, boot = lock.read_text().splitlines()
    except (FileNotFoundError, ValueError):
        return None
    return (
        {"pid": int(stat.split()[0]), "started": _start_ticks(stat)} if boot == boot_id() else None
    )


def listening(process: psutil.Process) -> set[int]:
    connections = process.net_connections("tcp")
    return {each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN}


def family(process: psutil.Process) -> list[psutil.Process]:
    """A process, what descends from it, and orphans of the session it leads; itself first."""
    processes = {each for each in psutil.process_iter() if _session(each.pid) == process.pid}
    with suppress(psutil.NoSuchProcess):
        processes.update(process.children(recursive=True))
    return [process, *(each for each in processes if each.pid != process.pid)]


def send(number: int, processes: Iterable[psutil.Process]) -> None:
    """Sends a signal to those that are still there."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def wait(processes: Iterable[psutil.Process], timeout: float) -> list[psutil.Process]:
    """Returns those still there at the end; whoever is gone holds no port or file any more."""
    deadline = time.monotonic() + timeout
    there = [process for process in processes if not _is_gone(process)]
    while there and time.monotonic() < deadline:
        time.sleep(0.01)
        there = [process for process in there if not _is_gone(process)]
    return there


def tail(log: Path, lines: int = 20) -> str:
    """The end of a log, as an error shows it."""
    text = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "\n  ".join([f"The end of {log}:", *(text[-lines:] or ["(empty)"])])


def alive(process: psutil.Process) -> bool:
    """Returns whether it, not another process with its number, still works."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _start_ticks(stat: str) -> int:
    return int(stat.rpartition(")")[2].split()[19])


def _is_gone(process: psutil.Process) -> bool:
    """An orphaned zombie counts as gone (nobody may ever bury it), but not while it has threads."""
    if isinstance(process, psutil.Popen):
        return process.poll() is not None
    try:
        return not alive(process) and len(list(Path(f"/proc/{process.pid}/task").iterdir())) <= 1
    except FileNotFoundError:
        return True


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None
