"""Folders of an object store as ends of whole flows."""

from __future__ import annotations

import json
from collections.abc import Sequence

import devservers
from tests.systems import Change, Config, Row, System, state


class Files(System):
    type = "files"

    def at(self, role: str, config: Config) -> Config:
        from tests.connectors.files import driver

        server: devservers.SeaweedFS = self.request.getfixturevalue("seaweedfs")
        store, name = driver.bucket(server)
        self.request.addfinalizer(lambda: store.delete_dir(name))
        here = driver.on_s3(server, f"{name}/{role}")
        self.folder = driver.folder(here)
        return {**config, **here}

    def change(self, config: Config, changes: Sequence[Change]) -> None:  # noqa: ARG002 - one folder
        rows = [json.dumps(row, default=str) + "\n" for row in state(changes)]
        for name, half in (("b", rows[::2]), ("a", rows[1::2])):
            self.folder.put(f"{name}.jsonl", "".join(half).encode())

    def rows(self, config: Config) -> list[Row]:  # noqa: ARG002 - one folder
        from tests.connectors.files import driver

        return [row for file in driver.lines(self.folder) for row in file]
