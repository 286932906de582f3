"""A flow from one folder into another one, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from dataflow_assets.connectors.files.client import FilesStored
from tests.connectors.files import driver


class Ends:
    """The folders of a flow, and its manifest; flows of one place write into one folder."""

    def __init__(self, place: driver.Config, folder: Path, name: str, **spec: Any) -> None:
        read, written = ({**place, "path": f"{place['path']}/{end}"} for end in (name, "out"))
        self.source, self.sink = driver.folder(read), driver.folder(written)
        self.source.put("_made", b"")  # a source of a disk needs its folder
        document = {
            "apiVersion": "dataflow.dataflow.io/v1",
            "kind": "DataFlow",
            "metadata": {"name": name},
            "spec": {
                "source": {"type": "files", "config": {**read, **spec.pop("reading", {})}},
                "sink": {"type": "files", "config": {**written, **spec.pop("writing", {})}},
                **spec,
            },
        }
        self.manifest = str(folder / f"{name}.yaml")
        YAML().dump(document, Path(self.manifest))

    @property
    def visible(self) -> list[FilesStored]:
        """The files of the sink that readers see."""
        return list(driver.visible(self.sink.files()))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """What readers of the sink see, file by file."""
        return [row for file in driver.lines(self.sink) for row in file]

    @property
    def stored(self) -> list[int]:
        """Their ids."""
        return [row["id"] for row in self.rows]
