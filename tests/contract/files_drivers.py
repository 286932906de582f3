"""Test drivers of the files connector."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from dataflow_assets.connectors.files import FilesSink, FilesSource
from dataflow_assets.connectors.files.client import FilesStored
from dataflow_assets.connectors.files.table.commit_log import LOGS, name_of
from dataflow_assets.contracts import Sink, Source, Target
from devservers import Proxy
from tests.connectors.files import driver
from tests.contract.drivers import Row, SinkDriver, SourceDriver, encode, pairs
from tests.contract.remote import SECRET, Remote, proxied


class _Bucket(Remote):
    """A folder of a fresh bucket, at either end."""

    altered = None
    denied = r"cannot \w+ s3://files-\w+/folder: .+; check the credentials and what they may do"

    def _make(self, request: pytest.FixtureRequest) -> None:
        self.request = request
        self.server = request.getfixturevalue("seaweedfs")
        self.store, self.bucket = driver.bucket(self.server)
        request.addfinalizer(self._remove)
        self.config: driver.Config = driver.on_s3(self.server, f"{self.bucket}/folder")
        self.folder = driver.folder(self.config)
        self.changes: dict[str, Any] = {}

    def _remove(self) -> None:
        if self.bucket:
            self.store.delete_dir(self.bucket)

    def through(self) -> tuple[Proxy, ...]:
        proxy = proxied(self.server.ports["s3"], self.request.addfinalizer)
        self.changes["s3Endpoint"] = f"http://127.0.0.1:{proxy.port}"
        return (proxy,)

    def wrong_credentials(self) -> None:
        self.changes["secretAccessKey"] = SECRET

    def alter(self) -> None:
        """Lines have no columns."""

    def mend(self) -> None:
        """Nothing to do."""

    def drop(self) -> None:
        self.store.delete_dir(self.bucket)
        self.bucket = ""


class _Target(SinkDriver):
    type = "files"
    in_task = "files.staged"
    emptying = "files.removing"
    bad = (b"not json", b"", b'{"id": 1')
    failpoints: ClassVar[tuple[str, ...]] = (
        "drain.begun",
        "files.begin",
        "files.write",
        "files.staged",
        "drain.passed",
        "files.before-commit",
        "files.committed",
        "files.published",
        "files.finished",
        "drain.finished",
    )
    config: driver.Config
    folder: driver.Folder

    def rows(self) -> list[Row]:
        return sorted(row for sequence in self.arrived() for row in sequence)

    def arrived(self) -> list[list[Row]]:
        """A commit has files in the order of their names, each of one partition."""
        return [[row for file in driver.lines(self.folder) for row in pairs(file)]]

    def rejected(self) -> list[str]:
        found = driver.lines(self.folder, rejected=True)
        return sorted(row["error"]["message"] for file in found for row in file)

    def rebuild(self, rows: Sequence[Row]) -> None:
        """As a copy into a new folder of this name: with the checkpoints, and another id."""
        for one in driver.visible(self.folder.files()):
            self.folder.delete(one.name)
        self.folder.delete("_dataflow/folder")
        if rows:
            self.folder.put("copied.jsonl", b"".join(encode(row) + b"\n" for row in rows))

    def lose(self, target: Target) -> None:
        for one in self._versions(target):
            self.folder.delete(one.name)

    def move(self, target: Target, offset: int) -> None:
        newest = self._versions(target)[-1].name
        commit = json.loads(self.folder.read(newest))
        commit["state"]["checkpoint"]["positions"]["0"] = offset
        self.folder.put(newest, json.dumps(commit).encode())

    def _versions(self, target: Target) -> list[FilesStored]:
        return self.folder.files(f"{LOGS}/{name_of(target)}")


_SILENT = r"no answer from the object store at 127\.0\.0\.1:\d+: .+"


class FilesTarget(_Target, _Bucket):
    down = rf"cannot open s3://files-\w+/folder: {_SILENT}"
    dropped = (
        r"the checkpoint of flow \S+ was removed while it ran|"
        r"Bucket '\S+' does not exist; create the bucket"
    )

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._make(request)

    def declare(self) -> Sink:
        return FilesSink.model_validate(self.config | {"compression": "gzip"} | self.changes)

    def busy(self, request: bytes) -> bool:
        return request.startswith(b"PUT ") and b"/_dataflow/staged/" in request.split(b"\r\n")[0]

    def final(self, request: bytes) -> bool:
        return request.startswith(b"PUT ") and b"/_dataflow/log/" in request.split(b"\r\n")[0]


class FilesOnDisk(_Target):
    variant = "disk"

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        tmp: Path = request.getfixturevalue("tmp_path")
        self.config = driver.on_disk(tmp / "folder")
        self.folder = driver.folder(self.config)

    def declare(self) -> Sink:
        return FilesSink.model_validate(self.config)


class FilesFolder(SourceDriver, _Bucket):
    """Every seed is two files, the later one with the earlier name."""

    type = "files"
    down = rf"cannot open s3://files-\w+/folder: {_SILENT}"
    dropped = r"Bucket '\S+' does not exist; create the bucket|the file \S+ is gone|is gone, and it"

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._make(request)
        self._seeds = 0

    def seed(self, rows: Sequence[Row], raw: Sequence[bytes] = ()) -> None:
        self._seeds += 1
        bodies = [*map(encode, rows), *raw]
        half = len(bodies) // 2
        for name, part in (("b", bodies[:half]), ("a", bodies[half:])):
            if part:
                lines = b"".join(body + b"\n" for body in part)
                self.folder.put(f"{name}-{self._seeds}-{uuid.uuid4().hex[:4]}.jsonl", lines)

    def declare(self) -> Source:
        options = {"parallelReads": 2}
        return FilesSource.model_validate(self.config | options | self.changes)

    def busy(self, request: bytes) -> bool:
        return request.startswith(b"GET ") and b".jsonl" in request.split(b"\r\n")[0]

    final = busy
