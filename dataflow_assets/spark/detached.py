"""Servers that outlive whoever started them, found again through one file of their folder.

`servers.json` says which servers of a folder run, with their process numbers and ports. The folder
holds the servers' data as well, so that a second `up` finds yesterday's data on yesterday's ports.
A server whose start was killed is in no file but its own lock: the next `up` or `down` ends it.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from dataflow_assets.spark.process import Server, ServerError
from dataflow_assets.spark.system import boot_id

FILE = "servers.json"
Progress = Callable[[str], None]
S = TypeVar("S", bound=Server)
Known = Mapping[str, S]
"""The servers that may run in a folder, by name, as this process describes them."""


def up(folder: Path, known: Known[S], wanted: Collection[str], progress: Progress) -> dict[str, S]:
    """Starts those of `wanted` that do not run yet, side by side, and returns all that run.

    When one of them fails, the others stay up, and ServerError names each failure. An interrupt
    waits until all have settled, so that what runs is noted.
    """
    with _lock(folder):
        servers = running(folder, known)
        starts: list[Future[S]] = []
        try:
            with ThreadPoolExecutor() as pool:
                starts.extend(pool.submit(_start, known[name]) for name in wanted - servers.keys())
                for start in as_completed(starts):
                    if not start.exception():
                        _tell(start.result(), progress)
        finally:
            settled = [start for start in starts if start.done() and not start.exception()]
            servers |= {server.name: server for server in (start.result() for start in settled)}
            _write(folder, servers)
    if failures := [error for start in starts if (error := start.exception())]:
        raise ServerError("\n".join(map(str, failures))) from failures[0]
    return servers


def running(folder: Path, known: Known[S]) -> dict[str, S]:
    """The servers of a folder that run now. Another boot's process numbers mean nothing."""
    file = folder / FILE
    noted = json.loads(file.read_text()) if file.exists() else {}
    if noted.get("boot_id") != boot_id():
        return {}
    return {
        name: known[name]
        for name, entry in noted["servers"].items()
        if known[name].attach(entry["process"], entry["ports"])
    }


def down(folder: Path, known: Known[S], progress: Progress) -> None:
    """Stops the servers of a folder, nobody else: process numbers are checked with start times."""
    with _lock(folder):
        noted = running(folder, known)
        servers = [each for name, each in known.items() if name in noted or each.find()]
        with ThreadPoolExecutor() as pool:
            for server, _ in zip(servers, pool.map(lambda each: each.stop(), servers), strict=True):
                progress(f"{server.name} stopped")
        (folder / FILE).unlink(missing_ok=True)


def _start(server: S) -> S:
    if server.find():  # its start was interrupted: it may never have got ready
        server.stop()
    return server.start()


def _tell(server: Server, progress: Progress) -> None:
    endpoint = next(iter(server.endpoints().values()))
    progress(f"{server.name} runs (pid {server.pid}): {endpoint}")


def _write(folder: Path, servers: Known[Server]) -> None:
    entries = {
        name: {
            "process": server.identity(),
            "ports": {**server.ports},
            "endpoints": {**server.endpoints()},
        }
        for name, server in servers.items()
    }
    scratch = folder / f".{FILE}"
    scratch.write_text(json.dumps({"boot_id": boot_id(), "servers": entries}, indent=2) + "\n")
    scratch.replace(folder / FILE)


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """One `up` or `down` at a time per folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
