"""What tests ask Trino for, past every flow."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import devservers
from dataflow_assets.connectors.trino import TrinoSink
from dataflow_assets.connectors.trino.client import Client


def execute(
    server: devservers.Trino, sql: str, schema: str = "information_schema"
) -> list[list[Any]]:
    """The rows of a statement's answer."""
    config = {"serverURL": server.uri, "catalog": "lake", "schema": schema}
    with closing(Client(TrinoSink.model_validate(config | {"table": "t"}), "tests")) as client:
        return client.rows(sql)
