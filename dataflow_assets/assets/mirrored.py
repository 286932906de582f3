"""The mirrored checkpoints of assets, read from Dagster's events."""

from collections.abc import Iterable
from typing import Any

import dagster as dg

from dataflow_assets.assets import mirror
from dataflow_assets.assets.graph import Key
from dataflow_assets.assets.metadata import CHECKPOINT


def mirrored(instance: dg.DagsterInstance, key: Key) -> Any:
    """The newest mirrored checkpoint; events that carry none are stepped over."""
    for record in instance.fetch_materializations(dg.AssetKey(list(key)), limit=5).records:
        if (value := _value(record.asset_materialization)) is not None:
            return value
    return None


def mirrored_together(instance: dg.DagsterInstance, keys: Iterable[Key]) -> dict[Key, Any]:
    """The same for many assets, in one question wherever the newest event carries one."""
    names = {dg.AssetKey(list(key)): key for key in keys}
    newest = instance.get_latest_materialization_events(list(names)) if names else {}
    found: dict[Key, Any] = {}
    for name, key in names.items():
        event = newest.get(name)
        value = _value(event.asset_materialization) if event else None
        found[key] = mirrored(instance, key) if event and value is None else value
    return found


def _value(event: dg.AssetMaterialization | None) -> Any:
    """The checkpoint that an event carries."""
    value = event.metadata.get(CHECKPOINT) if event else None
    return value.value if value is not None and mirror.positions(value.value) is not None else None
