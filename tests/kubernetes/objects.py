"""Custom resources as an API server has them."""

from __future__ import annotations

from typing import Any

from dataflow_assets.connectors.memory import Store
from dataflow_assets.kubernetes.crds import resources
from dataflow_assets.kubernetes.objects import CustomResource

FLOWS = resources()[0]


def flow(store: Store | str, name: str = "orders", **spec: Any) -> dict[str, Any]:
    """A DataFlow over memory; `spec` adds to its spec."""
    path = store if isinstance(store, str) else store.name
    return {
        "apiVersion": "dataflow.dataflow.io/v1",
        "kind": "DataFlow",
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}", "generation": 1},
        "spec": {
            "source": {"type": "memory-offsets", "config": {"store": path, "topic": name}},
            "sink": {"type": "memory-slice", "config": {"store": path, "table": name}},
            **spec,
        },
    }


def resource(document: dict[str, Any], **metadata: Any) -> CustomResource:
    return CustomResource(FLOWS, document | {"metadata": document["metadata"] | metadata})
