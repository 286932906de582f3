"""Keycloak, once for the session; its tokens are signed with the key that Trino checks by."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import devservers


@pytest.fixture(scope="session")
def keycloak(servers_folder: Path, trino: devservers.Trino) -> Iterator[devservers.Keycloak]:
    with devservers.Keycloak(servers_folder / "keycloak", key=trino.key) as server:
        yield server
