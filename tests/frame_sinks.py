"""A sink with frames for each system whose server is light, on a fresh place of its own."""

from __future__ import annotations

from typing import Any

import pytest

import devservers
from dataflow_assets.connectors.clickhouse import ClickhouseSink
from dataflow_assets.connectors.iceberg.sink.sink import IcebergSink
from dataflow_assets.connectors.postgresql.sink.sink import PostgresqlSink
from dataflow_assets.sdk.table_frames import FrameSink

PLACES = {"postgresql": "schema", "clickhouse": "database", "iceberg": "namespace"}
"""By system the fixture that makes a schema, database or namespace."""


def frame_sink(request: pytest.FixtureRequest, system: str) -> tuple[FrameSink, str]:
    """A sink, and the name of its fresh schema, database or namespace."""
    place = str(request.getfixturevalue(PLACES[system]))
    if system == "iceberg":
        return lake_sink(request.getfixturevalue("seaweedfs"), place), place
    server: Any = request.getfixturevalue(system)
    if system == "clickhouse":
        given = {"connectionString": server.dsn(place), "table": "orders"}
        return ClickhouseSink.model_validate(given), place
    given = {"connectionString": server.dsn(), "table": f"{place}.orders"}
    return PostgresqlSink.model_validate(given), place


def lake_sink(seaweedfs: devservers.SeaweedFS, namespace: str) -> IcebergSink:
    """Of a table `orders` of the namespace."""
    found = seaweedfs.endpoints()
    return IcebergSink.model_validate(
        {
            "catalogURI": found["uri"],
            "warehouse": found["warehouse"],
            "namespace": namespace,
            "table": "orders",
            "oauth2ClientID": found["access_key"],
            "oauth2ClientSecret": found["secret_key"],
            "autoCreateTable": True,
            "s3Endpoint": found["s3_endpoint"],
            "s3Region": "us-east-1",
            "accessKey": found["access_key"],
            "secretAccessKey": found["secret_key"],
        }
    )
