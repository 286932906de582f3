"""The files of a view's state: written once, read whole, checked, deleted when they are garbage."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dataflow_assets import failpoints
from dataflow_assets.connectors.files.client import Folder
from dataflow_assets.connectors.files.options import FilesConnection
from dataflow_assets.contracts import digest
from dataflow_assets.errors import Lost, PermanentError, TransientError
from dataflow_assets.languages.sql.state.manifest import StateFile

_LONGEST = 80


class StateFiles:
    """The folder of one view: below it a folder for each generation, in it one for each span."""

    def __init__(self, location: FilesConnection, flow: str) -> None:
        self._location, self._flow = location, flow
        readable = re.sub(r"[^a-zA-Z0-9_-]+", "-", flow)[:_LONGEST]
        self.folder = f"{readable}.{digest(flow.encode())[:12]}"
        with self._translate_errors():
            self._files = Folder(location)

    def check(self) -> None:
        """Raises TransientError where the location cannot be reached, PermanentError without it."""
        try:
            with self._translate_errors():
                self._files.check()
        except FileNotFoundError as error:
            raise PermanentError(
                f"flow {self._flow}: the location of its state is missing: {error}"
            ) from None

    def write(self, name: str, content: bytes, rows: int) -> StateFile:
        """Writes a new file; durable when it returns."""
        with self._translate_errors():
            self._files.put(self._path(name), content)
        failpoints.reach("view.file")
        return StateFile(name, rows, len(content), hashlib.sha256(content).hexdigest())

    def read(self, name: str, digest: str) -> bytes:
        """The content, as it was written. Raises Lost where it is gone or damaged."""
        try:
            with self._translate_errors():
                content: bytes = self._files.read(self._path(name))
        except FileNotFoundError:
            raise self._broken_file(name, "is gone") from None
        if hashlib.sha256(content).hexdigest() != digest:
            raise self._broken_file(name, "is damaged: it is not what was written")
        return content

    def open(self, name: str) -> Any:
        try:
            with self._translate_errors():
                return self._files.open(self._path(name))
        except FileNotFoundError:
            raise self._broken_file(name, "is gone") from None

    def times(self) -> dict[str, int]:
        """Returns when each file of the view was written, in ns since 1970, by name."""
        with self._translate_errors():
            infos = self._files.files(self.folder)
        return {one.name.removeprefix(f"{self.folder}/"): one.changed for one in infos}

    def delete(self, name: str) -> None:
        """Takes a file away, and its folder with the last one; nothing where there is none."""
        with self._translate_errors():
            self._files.delete(self._path(name))
        if not self._location.on_s3:
            with suppress(OSError):  # others are in it
                Path(self._location.root, self._path(name)).parent.rmdir()

    def _path(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def _broken_file(self, name: str, what: str) -> Lost:
        return Lost(
            f"flow {self._flow}: the file {self._location.path}/{self._path(name)} of its state "
            f"{what}. Put the file back from a copy, or build the state again: dataflow run PATH "
            f"--flow {self._flow} --from earliest, with the path of its file, reads the topic "
            "again and replaces the rows of the same keys"
        )

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise TransientError(
                f"flow {self._flow}: the location of its state, {self._location.path}, cannot be "
                f"reached: {error}"
            ) from error
