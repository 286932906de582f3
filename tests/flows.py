"""Flows between the systems of tests, as manifests."""

from __future__ import annotations

import uuid
from importlib import import_module
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from dataflow_assets import registry
from dataflow_assets.connectors.memory import Store
from tests import connectors
from tests.systems import Config, System


def _all_systems() -> dict[str, type[System]]:
    """By type: those of `system.py` of every connector."""
    folders = sorted(path.parent.name for path in Path(*connectors.__path__).glob("*/system.py"))
    modules = [import_module(f"{connectors.__name__}.{name}.system") for name in folders]
    classes = [item for module in modules for item in vars(module).values() if _is_system(item)]
    return {item.type: item for item in classes}


def _is_system(item: object) -> bool:
    return isinstance(item, type) and issubclass(item, System) and "type" in vars(item)


SYSTEMS = _all_systems()


def made_by(sink: System) -> Config:
    """The flow makes the sink's table itself."""
    fields = registry.sinks()[sink.type].model_fields
    return {"autoCreateTable": True} if "auto_create_table" in fields else {}


def messages(store: Store) -> tuple[str, Config]:
    """The source of a flow that reads the topic `t` of a store."""
    return "memory-offsets", {"store": store.name, "topic": "t"}


def manifest(
    folder: Path,
    source: tuple[str, Config],
    sink: tuple[str, Config],
    records: int = 100,
    **spec: Any,
) -> Path:
    """A flow between these two ends, in micro-batches of so many records of a partition."""
    ends = {
        role: {"type": kind, "config": config}
        for role, (kind, config) in (("source", source), ("sink", sink))
    }
    name = f"flow-{uuid.uuid4().hex[:8]}"
    document = {
        "apiVersion": "dataflow.dataflow.io/v1",
        "kind": "DataFlow",
        "metadata": {"name": name},
        "spec": {"maxRecordsPerBatch": records, **ends, **spec},
    }
    path = folder / f"{name}.yaml"
    YAML().dump(document, path)
    return path
