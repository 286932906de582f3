from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.connectors.files import driver


@pytest.fixture(params=["s3", "disk"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[driver.Config]:
    """The options of a fresh folder of each kind."""
    if request.param == "disk":
        yield driver.on_disk(tmp_path / "folder")
        return
    server = request.getfixturevalue("seaweedfs")
    store, name = driver.bucket(server)
    yield driver.on_s3(server, f"{name}/folder")
    store.delete_dir(name)
