"""Keycloak, once for the session; its tokens are signed with the key that Trino checks by."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

import devservers


@pytest.fixture(autouse=True)
def _keycloak_starts(request: pytest.FixtureRequest) -> None:
    """With the first test of Trino: half of a minute, in which tests without Keycloak run."""
    asked = any("keycloak" in getattr(one, "fixturenames", ()) for one in request.session.items)
    if asked and "trino" in request.fixturenames:
        request.getfixturevalue("starting_keycloak")


@pytest.fixture(scope="session")
def starting_keycloak(
    servers_folder: Path, trino: devservers.Trino
) -> Iterator[Future[devservers.Keycloak]]:
    server = devservers.Keycloak(servers_folder / "keycloak", key=trino.key)
    with ThreadPoolExecutor(1) as starter:
        starting = starter.submit(server.start)
        try:
            yield starting
        finally:
            starting.exception()  # once its start has ended, however it ended
            server.kill()


@pytest.fixture(scope="session")
def keycloak(starting_keycloak: Future[devservers.Keycloak]) -> devservers.Keycloak:
    return starting_keycloak.result()
