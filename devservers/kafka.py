"""One Kafka broker that is its own controller.

Topics must be created (no auto-creation) and can be deleted; transactions work; cleaner and
retention look every second, so that compaction and expiry can be tested. Acknowledged writes
survive `kill`: they are in the page cache.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Self

from confluent_kafka.admin import AdminClient
from typing_extensions import override

from dataflow_assets.spark import jars, java, system
from dataflow_assets.spark.process import LOOPBACK, Server
from devservers.programs import run
from devservers.proxy import Proxy

SINGLE_NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAIN",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAIN:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "auto.create.topics.enable": "false",
    "delete.topic.enable": "true",
    # An index is a sparse, mapped file of this size; the default is 10 MB. Where the disk reads
    # megabytes ahead, each page fault fills all of the file's pages with zeros: a third of a core
    # for two hundred topics with a message a second each.
    "log.index.size.max.bytes": "262144",
}
IMPATIENT = {
    "group.initial.rebalance.delay.ms": "0",
    # After a crash the broker waits until its former self counts as gone: 9 s by default.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "400",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "log.initial.task.delay.ms": "500",
    "log.cleaner.backoff.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
    "log.cleaner.dedupe.buffer.size": "16777216",
}


@dataclass(eq=False, kw_only=True)
class Kafka(Server):
    """A broker at `bootstrap`; `config` adds to or overrides its properties."""

    name = "kafka"
    port_names: ClassVar[tuple[str, ...]] = ("kafka", "controller")

    config: Mapping[str, str] = field(default_factory=dict)
    heap: str = "512m"

    @property
    def bootstrap(self) -> str:
        """For `bootstrap.servers`."""
        return f"{LOOPBACK}:{self.ports['kafka']}"

    @override
    def endpoints(self) -> dict[str, str]:
        return {"bootstrap": self.bootstrap}

    @override
    def prepare(self) -> None:
        lines = (f"{key}={value}\n" for key, value in self._properties().items())
        self._file.write_text("".join(lines))
        if not (self.folder / "data" / "meta.properties").exists():
            # 22 characters of base64, as Kafka writes its own ids
            cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            tool = [*self._java("-XX:TieredStopAtLevel=1"), "kafka.tools.StorageTool", "format"]
            options = ["--ignore-formatted", f"--cluster-id={cluster}", "-c", str(self._file)]
            run([*tool, *options, *self._format_options()], "formatting Kafka's data folder")

    @override
    def command(self) -> list[str]:
        return [*self._java(f"-Xmx{self.heap}", *java.OPTIONS), "kafka.Kafka", str(self._file)]

    @override
    def ready(self) -> bool:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return len(admin.list_topics(timeout=2).brokers) == 1

    @property
    def _file(self) -> Path:
        return self.folder / "server.properties"

    def _properties(self) -> dict[str, str]:
        listener, controller = self.bootstrap, f"{LOOPBACK}:{self.ports['controller']}"
        here = {
            "listeners": f"PLAIN://{listener},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAIN://{listener}",
            "controller.quorum.voters": f"1@{controller}",
            "log.dirs": str(self.folder / "data"),
        }
        return SINGLE_NODE | IMPATIENT | here | dict(self.config)

    def _format_options(self) -> list[str]:
        """More for the tool that formats the data folder."""
        return []

    def _java(self, *options: str) -> list[str]:
        class_path = ":".join(map(str, jars.fetch("kafka")))
        logging = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dlog4j2.level=ERROR"]
        return [java.executable(), *options, *logging, "-cp", class_path]


@dataclass(eq=False, kw_only=True)
class ProxiedKafka(Kafka):
    """A broker that clients of `proxied` reach through `proxy` alone, whatever they ask it.

    A client goes where the broker says it listens, so the proxy has a listener of its own behind
    it, advertised on the proxy's port. `bootstrap` and the broker itself go past it.
    """

    port_names = ("kafka", "controller", "proxied")

    _advertised: int = field(default_factory=lambda: system.free_ports(1)[0], init=False)

    @cached_property
    def proxy(self) -> Proxy:
        """What stands between `proxied` and the broker."""
        return Proxy(self.ports["proxied"], port=self._advertised)

    @property
    def proxied(self) -> str:
        """For `bootstrap.servers` of whoever is to feel the faults."""
        return f"{LOOPBACK}:{self._advertised}"

    @override
    def start(self) -> Self:
        super().start()
        self.proxy.restore()
        return self

    @override
    def stop(self) -> None:
        self.proxy.close()
        super().stop()

    @override
    def _properties(self) -> dict[str, str]:
        found = super()._properties()
        found["listeners"] += f",PROXIED://{LOOPBACK}:{self.ports['proxied']}"
        found["advertised.listeners"] += f",PROXIED://{self.proxied}"
        found["listener.security.protocol.map"] += ",PROXIED:PLAINTEXT"
        return found
