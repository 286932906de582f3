"""What is noted about the address of a coordinator and of its Keycloak. No server."""

from __future__ import annotations

import pytest

from dataflow_assets.connectors.trino import TrinoSource
from dataflow_assets.spec import hints

PLACE = {"catalog": "c", "schema": "s", "table": "t"}
REALM = {"realm": "r", "clientID": "c", "clientSecret": "s"}


@pytest.mark.parametrize(
    ("scheme", "noted"), [("http", True), ("HTTP", True), ("https", False), ("HTTPS", False)]
)
def test_what_is_sent_in_clear_is_noted(scheme: str, noted: bool) -> None:
    keycloak = REALM | {"serverURL": f"{scheme}://keycloak:8080"}
    found = {"serverURL": f"{scheme}://trino:8080", "keycloak": keycloak} | PLACE
    source = TrinoSource.model_validate(found)
    about = {path for path, _ in hints(source)}
    assert about == ({"serverURL", "keycloak.serverURL"} if noted else set())
    assert len([*source.in_clear]) == 2 * noted
