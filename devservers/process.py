"""A server as a local process: started, watched until it answers, stopped, killed, paused, started again.

Guarantees:

- A server that `start` returns is ours and answers: the process lives, it (not a stranger) owns the port.
- Everything it forked goes with it, on `stop` and on `kill`.
- It does not outlive the process that started it, unless `detached`.
- `start` after `stop` or `kill` finds the same data on the same ports.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

import psutil

LOOPBACK = "127.0.0.1"
# Below the range from which the kernel takes client ports, or one of those may sit on ours at a restart.
PORTS = range(10_000, 22_000)
ATTEMPTS = 3
# Reads until its input ends, which is when the process holding the other end is gone, however it died.
GUARD = 'read _; kill -TERM -- "-$0"; sleep 5; kill -KILL -- "-$0"'


class ServerError(Exception):
    """A server did not start, stop or answer; the message carries the end of its log."""


class Server(ABC):
    """One server process with its folder (data, log, ports). Subclasses say how to start and what ready means."""

    name: ClassVar[str]
    port_names: ClassVar[tuple[str, ...]]
    start_timeout: ClassVar[float] = 90
    stop_timeout: ClassVar[float] = 20
    stop_signal: ClassVar[int] = signal.SIGTERM

    def __init__(
        self, folder: Path, *, ports: Mapping[str, int] | None = None, detached: bool = False
    ) -> None:
        self.folder = Path(folder).absolute()
        self.detached = detached
        self.ports: dict[str, int] = dict(ports or {})
        self._pinned = bool(ports)
        self._process: psutil.Process | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    # What a subclass says

    def prepare(self) -> None:  # noqa: B027 (most servers have something to prepare, not all)
        """Make data and configuration; called before every start, so it must leave existing data alone."""

    @abstractmethod
    def command(self) -> Sequence[str]:
        """The command line; the process must stay the same from here to the listening port."""

    def environment(self) -> Mapping[str, str]:
        """Variables on top of our own."""
        return {}

    @abstractmethod
    def ready(self) -> bool:
        """Whether it answers; asked only once the process owns its ports. Exceptions mean no."""

    @abstractmethod
    def endpoints(self) -> dict[str, str]:
        """How to reach it, for servers.json."""

    # Life

    def start(self) -> Self:
        """Start and wait until it answers; without effect on a server that runs."""
        if self.running:
            return self
        self.folder.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, ATTEMPTS + 1):
            self._choose_ports()
            self.prepare()
            self._launch()
            try:
                self._await()
            except BaseException as error:
                self.kill()
                # Somebody may have taken a free port between our look and the server's bind.
                if self._pinned or attempt == ATTEMPTS or not isinstance(error, ServerError):
                    raise
                self.ports = {}
            else:
                break
        self._pinned = True
        self._ports_file.write_text(json.dumps(self.ports))
        return self

    def stop(self) -> None:
        """Ask it to end (`stop_signal`), then make it (SIGKILL). Data stays."""
        self._stop_guard()
        if self._process is None:
            return
        self.resume()
        members = self._members()
        _signal([self._process], self.stop_signal)
        if alive := _wait(members, self.stop_timeout):
            _signal(alive, signal.SIGKILL)
            _wait(alive, self.stop_timeout)
        self._process = None

    def kill(self) -> None:
        """SIGKILL to it and all it forked, at once: a crash."""
        self._stop_guard()
        if self._process is None:
            return
        members = self._members()
        _signal(members, signal.SIGSTOP)  # so that nobody forks while we look
        members = [*members, *(new for new in self._members() if new not in members)]
        _signal(members, signal.SIGKILL)
        _wait(members, self.stop_timeout)
        self._process = None

    def pause(self) -> None:
        """SIGSTOP: it keeps its ports and connections and answers nothing."""
        _signal(self._members(), signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT: the end of a pause."""
        _signal(self._members(), signal.SIGCONT)

    @property
    def running(self) -> bool:
        """Whether our process, not another one with its number, lives."""
        return self._process is not None and _alive(self._process)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # Handing over to another process

    def identity(self) -> dict[str, int]:
        """What names our process beyond its number, within one boot."""
        if self._process is None:
            raise ServerError(f"{self.name} is not running")
        return {"pid": self._process.pid, "started": started(self._process.pid)}

    def attach(self, identity: Mapping[str, int], ports: Mapping[str, int]) -> bool:
        """Take over a process started elsewhere; False when it is gone or its number is somebody else's."""
        pid = identity["pid"]
        try:
            process = psutil.Process(pid)
            if started(pid) != identity["started"] or not _alive(process):
                return False
        except (psutil.NoSuchProcess, OSError):
            return False
        self._process, self.ports, self.detached, self._pinned = process, dict(ports), True, True
        return True

    # Inside

    @property
    def _ports_file(self) -> Path:
        return self.folder / "ports.json"

    def _choose_ports(self) -> None:
        if not self.ports and self._ports_file.exists():
            remembered: dict[str, int] = json.loads(self._ports_file.read_text())
            if all(map(is_free, remembered.values())):
                self.ports = remembered
        missing = [name for name in self.port_names if name not in self.ports]
        self.ports |= dict(zip(missing, free_ports(len(missing)), strict=True))
        if taken := [str(port) for port in self.ports.values() if not is_free(port)]:
            raise ServerError(f"{self.name}: port {', '.join(taken)} is in use by another process")

    def _launch(self) -> None:
        with self.log.open("ab") as log:
            # A session of its own: no Ctrl-C of the terminal, and one number for all it forks.
            process = psutil.Popen(
                [*self.command()],
                cwd=self.folder,
                env={**os.environ, **self.environment()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._process = process
        if not self.detached:
            self._guard = subprocess.Popen(
                ["sh", "-c", GUARD, str(process.pid)], stdin=subprocess.PIPE, start_new_session=True
            )

    def _stop_guard(self) -> None:
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
            self._guard = None

    def _await(self) -> None:
        deadline = time.monotonic() + self.start_timeout
        while not self._is_ready():
            if not self.running:
                raise ServerError(f"{self.name} ended while starting. {self._tail()}")
            if time.monotonic() > deadline:
                raise ServerError(
                    f"{self.name} runs (pid {self.pid}) but does not answer on its ports "
                    f"{self.ports} after {self.start_timeout:.0f} s. {self._tail()}"
                )
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        try:
            return self._owns_ports() and self.ready()
        except Exception:  # whatever the client library raises while nobody answers
            return False

    def _owns_ports(self) -> bool:
        assert self._process is not None
        listening = {
            connection.laddr.port
            for connection in self._process.net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN
        }
        return listening >= set(self.ports.values())

    def _tail(self, lines: int = 20) -> str:
        text = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n  ".join([f"The end of {self.log}:", *(text[-lines:] or ["(empty)"])])

    def _members(self) -> list[psutil.Process]:
        """Our process, what descends from it, and orphans of its session."""
        if self._process is None:
            return []
        members = {process for process in psutil.process_iter() if self._in_session(process)}
        try:
            members |= {*self._process.children(recursive=True)}
        except psutil.NoSuchProcess:
            pass
        return [self._process, *(process for process in members if process.pid != self.pid)]

    def _in_session(self, process: psutil.Process) -> bool:
        try:
            return os.getsid(process.pid) == self.pid
        except OSError:
            return False


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on. Another process may take one before you do."""
    found: set[int] = set()
    while len(found) < count:
        port = random.choice(PORTS)  # noqa: S311 (no secret; random keeps parallel sessions apart)
        if is_free(port):
            found.add(port)
    return sorted(found)


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def started(pid: int) -> int:
    """Clock ticks from boot to the start of a process: with its number, and within one boot, its identity."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[19])


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def run(command: Sequence[str], what: str) -> None:
    """Run a helper program (formatting, initdb) to its end."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ServerError(f"{what} failed ({done.returncode}): {done.stdout}{done.stderr}".strip())


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _wait(processes: Sequence[psutil.Process], timeout: float) -> list[psutil.Process]:
    """Those still there at the end; whoever is gone holds no port or file any more."""
    deadline = time.monotonic() + timeout
    there = [process for process in processes if not _gone(process)]
    while there and time.monotonic() < deadline:
        time.sleep(0.01)
        there = [process for process in there if not _gone(process)]
    return there


def _gone(process: psutil.Process) -> bool:
    """An orphaned zombie counts as gone (nobody may ever bury it), but not while it has threads."""
    if isinstance(process, psutil.Popen):
        return process.poll() is not None
    try:
        return not _alive(process) and len(os.listdir(f"/proc/{process.pid}/task")) <= 1
    except FileNotFoundError:
        return True


def _signal(processes: Sequence[psutil.Process], number: int) -> None:
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            pass
