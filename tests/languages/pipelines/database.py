"""Databases into which pipelines write, and pipelines of the page with a stream of the test's."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dataflow_assets.flow import Flow
from tests.connectors.kinesis.driver import Stream
from tests.languages.pipelines.files import loaded, told

BOTH = pytest.mark.parametrize("target", ["postgresql", "clickhouse"], indirect=True)


@dataclass(frozen=True)
class Database:
    """`query` runs a query of the page as it is written: the schema is in the path."""

    type: str
    schema: str
    connections: str  # the text of connections.yaml
    query: Callable[[str], list[tuple[Any, ...]]]


def written(stream: Stream, text: str) -> str:
    """The text of the page, with a stream, keys and an address of the test's own."""
    server = stream.server
    return (
        text.replace("my-kinesis-stream", stream.name)
        .replace("<aws_access_key>", server.access_key)
        .replace("<aws_secret_key>", server.secret_key)
        .replace('"kinesis.region"', f'"kinesis.endpoint": "{server.uri}",\n  "kinesis.region"')
    )


def flow_of(folder: Path, text: str, connections: str) -> Flow:
    found = loaded(folder, text, connections)
    assert told(found) == []
    (flow,) = found.flows
    return flow


def body(n: int) -> bytes:
    return json.dumps({"customer_id": n, "status": "active" if n % 2 else "idle"}).encode()


def parsed(value: Any) -> Any:
    """Of a column of JSON, which ClickHouse keeps as text."""
    return json.loads(value) if isinstance(value, str) else value
