"""A server as a local process: started, watched until it answers, stopped, killed, paused, resumed.

Guarantees:

- A server that `start` returns is ours and answers: the process lives, and it (not a stranger)
  owns the ports.
- Everything it forked goes with it, on `stop` and on `kill`.
- It does not outlive the process that started it, unless `detached`.
- Never two on the same data.
- `start` after `stop` or `kill` finds the same data on the same ports.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, ClassVar, Self

import psutil

from dataflow_assets.errors import TransientError
from dataflow_assets.spark import children, system
from dataflow_assets.spark.children import Guard

LOOPBACK = "127.0.0.1"
ATTEMPTS = 3
NOTE_SECONDS = 10.0  # in which a process that has begun says who it is, on a busy machine too
PORT_TAKEN = re.compile("in use|bind|listens on", re.IGNORECASE)


class ServerError(TransientError):
    """A server did not start, stop or answer; the message carries the end of its log."""


@dataclass(eq=False)
class Server(ABC):
    """One server process and its folder (data, log, ports).

    A subclass says how to start it and what ready means. `ports` given are used or it fails;
    else those of the last time, else free ones.
    """

    name: ClassVar[str]
    port_names: ClassVar[tuple[str, ...]]
    needs: ClassVar[tuple[str, ...]] = ()
    """Python packages of the extra `demo` that it does not start without."""
    start_timeout: ClassVar[float] = 90
    stop_timeout: ClassVar[float] = 20
    stop_signal: ClassVar[int] = signal.SIGTERM

    folder: Path
    _: KW_ONLY
    ports: Mapping[str, int] = field(default_factory=dict)
    detached: bool = False
    _process: psutil.Process | None = field(default=None, init=False, repr=False)
    _guard: Guard | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.folder = self.folder.absolute()
        self._fixed = bool(self.ports)

    def prepare(self) -> None:  # noqa: B027 (not every server has something to prepare)
        """Make data and configuration; called before every start, existing data must stay."""

    @abstractmethod
    def command(self) -> Sequence[str]:
        """The command line; its process itself must be the one that listens."""

    def environment(self) -> Mapping[str, str]:
        return {}

    @abstractmethod
    def ready(self) -> bool:
        """Returns whether it answers, asked once it owns its ports; an exception means no."""

    @abstractmethod
    def endpoints(self) -> Mapping[str, str]:
        """Returns how to reach it, the most useful one first."""

    def start(self) -> Self:
        """Start and wait until it answers; without effect on a server that runs."""
        if self.running:
            return self
        if missing := [name for name in self.needs if importlib.util.find_spec(name) is None]:
            raise ServerError(
                f"{self.name} as a local server needs the Python packages {', '.join(missing)}; "
                "install them: pip install 'dataflow-assets[demo]'"
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._try()
            except ServerError as error:
                # Somebody may take a free port between our look and the server's bind.
                if self._fixed or attempt == ATTEMPTS or not PORT_TAKEN.search(str(error)):
                    raise
                self.ports = {}
        raise AssertionError  # the last attempt returns or raises

    def stop(self) -> None:
        """Ask it to end (`stop_signal`), then make it (SIGKILL). Data stays."""
        self._end(self.stop_signal, self.stop_timeout)

    def kill(self) -> None:
        """SIGKILL to it and all it forked, at once: a crash. Data stays."""
        self._end(signal.SIGKILL, 0)

    def pause(self) -> None:
        """SIGSTOP: it keeps its ports and connections and answers nothing."""
        system.send(signal.SIGSTOP, self._family())

    def resume(self) -> None:
        system.send(signal.SIGCONT, self._family())

    @property
    def running(self) -> bool:
        return self._process is not None and system.alive(self._process)

    @property
    def pid(self) -> int | None:
        """The number of our process; None before `start` and after `stop`."""
        return self._process.pid if self._process else None

    @property
    def log(self) -> Path:
        """Returns what the server printed, over all its starts."""
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

    def identity(self) -> dict[str, int]:
        """Returns what `attach` in another process recognizes ours by, until the next boot."""
        if self._process is None:
            raise ServerError(f"{self.name} is not running")
        return {"pid": self._process.pid, "started": system.start_ticks(self._process.pid)}

    def attach(self, identity: Mapping[str, int], ports: Mapping[str, int]) -> bool:
        """Takes over a server started elsewhere; False when it is gone, whoever has its number."""
        if not self._take(identity):
            return False
        self.ports, self.detached, self._fixed = ports, True, True
        return True

    def find(self) -> bool:
        """Takes over, to end it, what an interrupted start left detached: only its lock tells.

        Whoever holds the lock notes itself in its first moments, so its note is waited for.
        """
        deadline = time.monotonic() + NOTE_SECONDS
        while not self._take_noted():
            if not system.is_locked(self._lock_file) or time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    @property
    def _ports_file(self) -> Path:
        return self.folder / "ports.json"

    @property
    def _lock_file(self) -> Path:
        return self.folder / ".lock"

    def _take_noted(self) -> bool:
        holder = system.holder(self._lock_file)
        return holder is not None and self._take(holder)

    def _take(self, identity: Mapping[str, int]) -> bool:
        process = system.find_process(identity["pid"], identity["started"])
        self._process = process or self._process
        return process is not None

    def _try(self) -> Self:
        """One start, of which nothing is left when it fails."""
        try:
            self._choose_ports()
            self.prepare()
            self._launch()
            self._await()
        except BaseException:
            self.kill()
            raise
        self._fixed = True
        self._ports_file.write_text(json.dumps(self.ports))
        return self

    def _choose_ports(self) -> None:
        if not self.ports:
            self.ports = self._remembered_ports() or dict(
                zip(self.port_names, system.free_ports(len(self.port_names)), strict=True)
            )
        if taken := [str(port) for port in self.ports.values() if not system.is_free(port)]:
            raise ServerError(f"{self.name}: another process listens on port {', '.join(taken)}")

    def _remembered_ports(self) -> dict[str, int]:
        """The ports of the last time, for whoever noted them down, unless somebody has one now."""
        if not self._ports_file.exists():
            return {}
        ports: dict[str, int] = json.loads(self._ports_file.read_text())
        usable = set(ports) == set(self.port_names) and all(map(system.is_free, ports.values()))
        return ports if usable else {}

    def _launch(self) -> None:
        with self.log.open("ab") as log, self._lock_file.open("a") as lock:
            self._claim(lock)
            options: dict[str, Any] = {
                "cwd": self.folder,
                "env": {**_environment(), **self.environment()},
                "stdin": subprocess.DEVNULL,
                "stdout": log,
                "stderr": log,
                "pass_fds": [lock.fileno()],
                # no Ctrl-C of the terminal, and one number for all it forks
                "start_new_session": True,
            }
            if self.detached:
                self._process = children.detach(self.command(), self._lock_file, **options)
            else:
                self._process = psutil.Popen(self.command(), **options)
        if not self.detached:
            self._guard = Guard(self._process.pid)

    def _claim(self, lock: IO[str]) -> None:
        """Two on the same data would ruin it; the server inherits this lock and keeps it."""
        deadline = time.monotonic() + self.stop_timeout  # one that ends just now may finish
        while not system.take_lock(lock):
            if time.monotonic() > deadline:
                raise ServerError(
                    f"{self.name}: another one runs on {self.folder}; stop it or choose another"
                )
            time.sleep(0.1)

    def _await(self) -> None:
        deadline = time.monotonic() + self.start_timeout
        while not self._is_ready():
            if not self.running:
                raise ServerError(f"{self.name} ended while starting. {system.tail(self.log)}")
            if time.monotonic() > deadline:
                raise ServerError(
                    f"{self.name} runs (pid {self.pid}) but does not answer on its ports "
                    f"{dict(self.ports)} after {self.start_timeout:.0f} s. {system.tail(self.log)}"
                )
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        assert self._process is not None  # noqa: S101 (for the type checker)
        try:
            owned = system.listening(self._process)
            return owned >= set(self.ports.values()) and self.ready()
        except Exception:  # noqa: BLE001 (whatever a client raises while nobody answers)
            return False

    def _family(self) -> list[psutil.Process]:
        return system.family(self._process) if self._process else []

    def _end(self, number: int, patience: float) -> None:
        if self._guard is not None:
            self._guard.end()
            self._guard = None
        if self._process is None:
            return
        self.resume()
        members = self._family()
        system.send(number, members[:1])
        if left := system.wait(members, patience):
            # What was forked meanwhile, too.
            left = list({*left, *self._family()})
            system.send(signal.SIGKILL, left)
            if left := system.wait(left, self.stop_timeout):
                numbers = ", ".join(str(process.pid) for process in left)
                raise ServerError(f"{self.name}: processes {numbers} do not end, not even killed")
        children.let_go(self._process.pid)
        self._process = None


def _environment() -> dict[str, str]:
    """Our environment without what would make a Spark server a client of another one."""
    return {name: value for name, value in os.environ.items() if name != "SPARK_REMOTE"}
