"""The demo of `make demo`: JSON orders into PostgreSQL, Iceberg and ClickHouse."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from typing_extensions import override

from devservers.demo.demo import Say
from devservers.demo.shop import Shop
from devservers.demo.shopkeeper import Sender
from devservers.demo.topics import TopicsDemo
from devservers.kafka import Kafka

TOPIC, PARTITIONS = "orders", 3
FILES = "DATAFLOW_FILES"  # the folder that the flows of the location may write below
ORDERS_PER_SECOND = 100.0  # each is sent about four times
TABLEFLOW = Path(__file__).with_name("tableflow.yaml")
KAFKA = {"kafka": 19092, "controller": 19093}


class OrdersDemo(TopicsDemo):
    """The manifests of `examples/demo`."""

    name = "demo"

    def __init__(self, folder: Path, offset: int, say: Say) -> None:
        super().__init__(folder, offset, say)
        self.kafka = Kafka(folder / "kafka", ports=self.moved(KAFKA))

    @override
    def open_shop(self, stack: ExitStack) -> None:
        self.make_topics({TOPIC: PARTITIONS})
        self._write_tableflow()
        broker = {"bootstrap.servers": self.kafka.bootstrap}
        sender = Sender(broker, TOPIC, self._folder / "next-order", Shop)
        sender.start(ORDERS_PER_SECOND)
        stack.callback(sender.stop)
        self._say(f"the shop is open: some {4 * ORDERS_PER_SECOND:.0f} messages a second")

    @override
    def variables(self) -> dict[str, str]:
        found = super().variables()
        flows = os.pathsep.join((found["DATAFLOW_FLOWS"], str(self._folder / "tableflow")))
        return found | {"DATAFLOW_FLOWS": flows, FILES: str(self._folder)}

    @override
    def status_command(self) -> str:
        return f"{FILES}={self._folder} {super().status_command()}"  # a relative one is no place

    def _write_tableflow(self) -> None:
        """A file of another language, whose table is a folder of the demo's own."""
        text = TABLEFLOW.read_text(encoding="utf-8")
        text = text.replace("19092", str(self.kafka.ports["kafka"]))
        file = self._folder / "tableflow" / TABLEFLOW.name
        file.parent.mkdir(exist_ok=True)
        file.write_text(
            text.replace("file:///demo", f"file://{self._folder}/lake"), encoding="utf-8"
        )

    @override
    def places(self) -> Iterator[tuple[str, str]]:
        yield from super().places()
        yield "Kafka", f"{self.kafka.bootstrap}, topic {TOPIC}"
        yield "Tableflow", f"{self._folder}/lake/warpstream/_tableflow/shop+{TOPIC}"
        yield "Iceberg", f"{self.seaweedfs.uri}, warehouse {self.seaweedfs.warehouse}"
