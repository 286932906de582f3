"""Files of Tableflow for tests: one cluster, one table, a bucket of a store or of the disk."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyiceberg.table import StaticTable

from dataflow_assets.flow import Flow
from dataflow_assets.manifests.load import load
from dataflow_assets.testing import choose
from tests.e2e.flows import produce

CLUSTER = "one"
FIELDS: tuple[dict[str, Any], ...] = (
    {"name": "id", "id": 3, "type": "int"},
    {"name": "name", "id": 7, "type": "string", "optional": True},
)


@dataclass(frozen=True)
class Bucket:
    """Where tables are, and what a reader by path needs to reach them."""

    url: str
    properties: dict[str, str] = field(default_factory=dict)

    def table(self, name: str) -> StaticTable:
        """By the folder alone, as a reader without a catalog finds it."""
        location = f"{self.url}/warpstream/_tableflow/{name}"
        return StaticTable.from_metadata(location, self.properties)


@dataclass
class Tableflow:
    """A file with one table, which may be edited."""

    path: Path
    bootstrap: str
    topic: str
    bucket: Bucket
    fields: Sequence[dict[str, Any]] = FIELDS
    source_format: str = "json"
    scheme: str = "unpartitioned"
    more: dict[str, Any] = field(default_factory=dict)
    """Keys of the table beside these."""
    registry: str = ""
    """The address of the schema registry that has the columns; empty: `fields` are the columns."""
    url: str = ""
    """Of the destination, where it is not the bucket's own."""

    @property
    def name(self) -> str:
        """Of the table."""
        return f"{CLUSTER}+{self.topic}"

    def write(self, **changes: Any) -> Flow:
        """The file, after these changes."""
        for name, value in changes.items():
            setattr(self, name, value)
        host, _, port = self.bootstrap.rpartition(":")
        brokers = [{"hostname": host, "port": int(port)}]
        cluster: dict[str, Any] = {"name": CLUSTER, "bootstrap_brokers": brokers}
        columns: dict[str, Any] = {"schema": {"fields": list(self.fields)}}
        if self.registry:
            cluster["schema_registry"] = {"url": self.registry}
            columns = {"schema_mode": "registry"}
        document = {
            "source_clusters": [cluster],
            "tables": [
                {
                    "source_cluster_name": CLUSTER,
                    "source_topic": self.topic,
                    "source_format": self.source_format,
                    "partitioning_scheme": self.scheme,
                    **columns,
                    **self.more,
                }
            ],
            "destination_bucket_url": self.url or self.bucket.url,
        }
        self.path.write_text(json.dumps(document, indent=1))  # JSON is YAML
        return choose(load(self.path), None)

    def produce(self, kafka: Any, bodies: Iterable[Any]) -> None:
        """Sends bodies: bytes as they are, all else as JSON."""
        produce(
            kafka,
            self.topic,
            [b if isinstance(b, bytes) else json.dumps(b).encode() for b in bodies],
        )

    def rows(self, name: str = "") -> list[dict[str, Any]]:
        """What a reader by path sees."""
        found: list[dict[str, Any]] = (
            self.bucket.table(name or self.name).scan().to_arrow().to_pylist()
        )
        return found
