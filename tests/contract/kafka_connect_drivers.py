"""Test driver of connectors of Kafka Connect: the lines of a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from dataflow_assets.connectors.kafka_connect import KafkaConnectSource
from dataflow_assets.contracts import Source
from tests.connectors.kafka_connect.driver import source
from tests.contract.drivers import Row, SourceDriver, encode


class KafkaConnectLines(SourceDriver):
    """One task reads the file that grows."""

    type = "kafkaConnect"
    has_server: ClassVar[bool] = False
    knows_ahead: ClassVar[bool] = False

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        self.folder: Path = request.getfixturevalue("tmp_path")
        self.file = self.folder / "lines.jsonl"
        self.file.touch()

    def seed(self, rows: Sequence[Row], raw: Sequence[bytes] = ()) -> None:
        with self.file.open("ab") as file:
            file.writelines(body + b"\n" for body in [*map(encode, rows), *raw])

    def declare(self) -> Source:
        config = {"file": str(self.file), "topic": "lines"}
        options = {"tasksMax": 1, "envelope": False}
        reading = source(self.folder, "FileStreamSourceConnector", config, **options)
        return KafkaConnectSource.model_validate(reading)
