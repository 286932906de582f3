"""A worker of Kafka Connect, standalone: a source connector, a topic, and a sink by JDBC."""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from typing_extensions import override

from dataflow_assets.spark import jars, java
from dataflow_assets.spark.process import LOOPBACK, Server
from devservers.unpacked import unpacked

Properties = Mapping[str, object]
_JSON = "org.apache.kafka.connect.json.JsonConverter"


@dataclass(eq=False, kw_only=True)
class ConnectWorker(Server):
    """Runs `connectors`, each by its properties, on a broker that has their topics."""

    name = "connect-worker"
    port_names: ClassVar[tuple[str, ...]] = ("rest",)

    bootstrap: str
    connectors: Mapping[str, Properties] = field(default_factory=dict)
    plugins: str

    @override
    def endpoints(self) -> dict[str, str]:
        return {"rest": f"http://{LOOPBACK}:{self.ports['rest']}"}

    @override
    def prepare(self) -> None:
        jdbc = self.folder / "plugins"
        jdbc.mkdir(exist_ok=True)
        if not (jdbc / "jdbc").exists():
            (jdbc / "jdbc").symlink_to(unpacked("connect-jdbc"))
        worker = {
            "bootstrap.servers": self.bootstrap,
            "key.converter": _JSON,
            "value.converter": _JSON,
            "offset.storage.file.filename": self.folder / "offsets",
            "offset.flush.interval.ms": 1_000,
            "plugin.path": f"{self.plugins},{jdbc}",
            "plugin.discovery": "service_load",
            "listeners": self.endpoints()["rest"],
        }
        for name, properties in {"worker": worker, **self.connectors}.items():
            lines = (f"{key}={value}\n" for key, value in properties.items())
            (self.folder / f"{name}.properties").write_text("".join(lines))

    @override
    def command(self) -> list[str]:
        logging = [jar for jar in jars.fetch("connect") if jar.name.startswith("slf4j-simple")]
        class_path = ":".join(map(str, [*jars.fetch("connect-worker"), *logging]))
        files = [str(self.folder / f"{name}.properties") for name in ("worker", *self.connectors)]
        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        level = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        return [java.executable(), "-Xmx512m", level, "-cp", class_path, main, *files]

    @override
    def ready(self) -> bool:
        with urllib.request.urlopen(self.endpoints()["rest"], timeout=2) as answer:  # noqa: S310
            return bool(answer.status == 200)


def jdbc_sink(url: str, topic: str, table: str) -> Properties:
    """As fast as the sink gets without losing what it promises: batches of 3,000 rows."""
    return {
        "name": "sink",
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
        "tasks.max": 1,
        "topics": topic,
        "connection.url": f"{url}&reWriteBatchedInserts=true",
        "connection.username": "postgres",
        "connection.password": "",
        "insert.mode": "insert",
        "primary.key.mode": "none",
        "collection.name.format": table,
        "schema.evolution": "none",
        "batch.size": 3_000,
        "consumer.override.max.poll.records": 3_000,
    }
