"""The manifests of a fleet: one topic with one partition and one PostgreSQL table for each flow."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SCHEMA = "fleet"


@dataclass(frozen=True)
class Member:
    """One flow of the fleet: its name is that of its topic and of its file as well."""

    name: str
    dsn: str
    """Of the database that its table is in, as the flow reaches it."""

    @property
    def table(self) -> str:
        """With its schema."""
        return table(self.name)


def table(name: str) -> str:
    """The table of a flow, with its schema."""
    return f"{SCHEMA}.{name.replace('-', '_')}"


def members(count: int, dsn: str) -> list[Member]:
    """As many flows, all into one database."""
    return [Member(f"fleet-{number:03}", dsn) for number in range(count)]


def write(folder: Path, bootstrap: str, flows: Sequence[Member]) -> None:
    """One file for each flow."""
    folder.mkdir(parents=True, exist_ok=True)
    for flow in flows:
        _put(folder, flow, manifest(flow, bootstrap))


def write_broken(folder: Path, flow: Member) -> None:
    """The flow's manifest without where it reads from, as a careless edit leaves it."""
    _put(folder, flow, manifest(flow, "") | {"spec": {"sink": _sink(flow)}})


def manifest(flow: Member, bootstrap: str) -> dict[str, object]:
    """Everything else is as it is by default."""
    source = {"brokers": [bootstrap], "topic": flow.name, "consumerGroup": flow.name}
    return {
        "apiVersion": "dataflow.dataflow.io/v1",
        "kind": "DataFlow",
        "metadata": {"name": flow.name},
        "spec": {"source": {"type": "kafka", "config": source}, "sink": _sink(flow)},
    }


def _sink(flow: Member) -> dict[str, object]:
    return {
        "type": "postgresql",
        "config": {"connectionString": flow.dsn, "table": flow.table},
    }


def _put(folder: Path, flow: Member, manifest: Mapping[str, object]) -> None:
    """JSON is YAML; the product reads files of this suffix alone."""
    (folder / f"{flow.name}.yaml").write_text(json.dumps(manifest, indent=1) + "\n")
