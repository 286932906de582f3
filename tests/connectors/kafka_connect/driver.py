"""Flows of Kafka's own connectors, for tests: plugins, spools, manifests."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

import devservers
from dataflow_assets.spark import jars
from tests.connectors.files import driver as files

Config = dict[str, Any]


def plugins(folder: Path, of: str = "connect-plugins") -> str:
    """A folder of plugins, as `plugin.path` names one: FileStream and MirrorMaker, or others."""
    plugin = folder / "plugins" / "kafka"
    plugin.mkdir(parents=True, exist_ok=True)
    for jar in jars.fetch(of):
        if not (plugin / jar.name).exists():
            (plugin / jar.name).symlink_to(jar)
    return str(plugin.parent)


def mirroring(server: devservers.Kafka, topic: str) -> Config:
    """Of MirrorSourceConnector: a topic of a cluster, as if it went into the same one."""
    return {
        "source.cluster.alias": f"a{uuid.uuid4().hex[:6]}",
        "target.cluster.alias": "b",
        "source.cluster.bootstrap.servers": server.bootstrap,
        "target.cluster.bootstrap.servers": server.bootstrap,
        "topics": topic,
        "replication.factor": 1,
        "offset-syncs.topic.replication.factor": 1,
        "sync.topic.configs.enabled": False,
        "sync.topic.acls.enabled": False,
        "refresh.topics.enabled": False,
    }


def source(folder: Path, connector: str, config: Config, **options: Any) -> Config:
    return {
        "class": connector,
        "config": config,
        "plugins": [plugins(folder)],
        "spool": str(folder / "spool"),
        "heap": "128m",
        **options,
    }


class Flow:
    """From a connector into a folder."""

    def __init__(self, folder: Path, config: Config, **spec: Any) -> None:
        self.folder, self.spool = folder, folder / "spool"
        self.sink = files.folder(files.on_disk(folder / "out"))
        document = {
            "apiVersion": "dataflow.dataflow.io/v1",
            "kind": "DataFlow",
            "metadata": {"name": "connect"},
            "spec": {
                "source": {"type": "kafkaConnect", "config": config},
                "sink": {"type": "files", "config": files.on_disk(folder / "out")},
                **spec,
            },
        }
        self.manifest = str(folder / "connect.yaml")
        YAML().dump(document, Path(self.manifest))

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for file in files.lines(self.sink) for row in file]


def stream(folder: Path, **spec: Any) -> Flow:
    """The lines of a file, a thousand of a poll."""
    config = {"file": str(folder / "in.txt"), "topic": "lines", "batch.size": 1_000}
    reading = source(folder, "FileStreamSourceConnector", config, tasksMax=1)
    return Flow(folder, reading, **spec)
