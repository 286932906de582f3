"""Servers that outlive whoever started them, found again through one file of their folder.

`servers.json` says which servers of a folder run, with their process numbers and ports. The folder
holds the servers' data as well, so that a second `up` finds yesterday's data on yesterday's ports.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path

from dataflow_assets.spark.process import Server, ServerError
from dataflow_assets.spark.system import boot_id

FILE = "servers.json"
Progress = Callable[[str], None]
Known = Mapping[str, Server]
"""The servers that may run in a folder, by name, as this process describes them."""


def up(folder: Path, known: Known, wanted: Collection[str], progress: Progress) -> Known:
    """Starts those of `wanted` that do not run yet, side by side, and returns all that run.

    When one of them fails, the others stay up, and ServerError names each failure.
    """
    with _locked(folder):
        servers = running(folder, known)
        try:
            for server in _start([known[name] for name in wanted - servers.keys()], progress):
                servers[server.name] = server
        finally:
            _write(folder, servers)
    return servers


def running(folder: Path, known: Known) -> dict[str, Server]:
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


def down(folder: Path, known: Known, progress: Progress) -> None:
    """Stops the servers of a folder, nobody else: process numbers are checked with start times."""
    with _locked(folder):
        servers = list(running(folder, known).values())
        with ThreadPoolExecutor() as pool:
            for server, _ in zip(servers, pool.map(lambda each: each.stop(), servers), strict=True):
                progress(f"{server.name} stopped")
        (folder / FILE).unlink(missing_ok=True)


def _start(servers: list[Server], progress: Progress) -> Iterator[Server]:
    """Side by side, each handed over as it answers; failures are raised when all have settled."""
    failures: list[BaseException] = []
    with ThreadPoolExecutor() as pool:
        for future in as_completed(pool.submit(server.start) for server in servers):
            if error := future.exception():
                failures.append(error)
                continue
            server = future.result()
            endpoint = next(iter(server.endpoints().values()))
            progress(f"{server.name} runs (pid {server.pid}): {endpoint}")
            yield server
    if failures:
        raise ServerError("\n".join(map(str, failures))) from failures[0]


def _write(folder: Path, servers: Known) -> None:
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
def _locked(folder: Path) -> Iterator[None]:
    """One `up` or `down` at a time per folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
