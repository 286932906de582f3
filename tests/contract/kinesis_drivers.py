"""Test driver of the Kinesis connector."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from dataflow_assets.connectors.kinesis import KinesisSource
from dataflow_assets.contracts import Source
from devservers import Proxy
from tests.connectors.kinesis.driver import SHARDS, Stream
from tests.contract.drivers import Row, SourceDriver, encode
from tests.contract.remote import SECRET, Remote, proxied


class KinesisStream(SourceDriver, Remote):
    """Two shards; one of them is split while a run reads."""

    type = "kinesis"
    down = r"cannot open the Kinesis stream stream-\w+: EndpointConnectionError: .+"
    denied = (
        r"cannot open the Kinesis stream stream-\w+: \S+: .+; "
        r"check the credentials of the flow and what they may do with the stream"
    )
    altered = None
    dropped = r"the Kinesis stream stream-\w+: ResourceNotFoundException: .+; create the stream"

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.request = request
        self.stream = Stream(request.getfixturevalue("kinesis"))
        request.addfinalizer(self._remove)
        self.changes: dict[str, Any] = {}

    def _remove(self) -> None:
        with suppress(self.stream.client.exceptions.ResourceNotFoundException):
            self.stream.remove()

    def seed(self, rows: Sequence[Row], raw: Sequence[bytes] = ()) -> None:
        self.stream.put([*map(encode, rows), *raw])

    def declare(self) -> Source:
        return KinesisSource.model_validate(self.stream.config | self.changes)

    def through(self) -> tuple[Proxy, ...]:
        proxy = proxied(self.stream.server.ports["kinesis"], self.request.addfinalizer)
        self.changes["endpoint"] = f"http://127.0.0.1:{proxy.port}"
        return (proxy,)

    def busy(self, request: bytes) -> bool:
        return b"Kinesis_20131202.GetRecords" in request

    final = busy

    def wrong_credentials(self) -> None:
        self.changes["secretAccessKey"] = SECRET

    def alter(self) -> None:
        self.stream.split(SHARDS[0])

    def mend(self) -> None:
        """Nothing to do."""

    def drop(self) -> None:
        self.stream.remove()
