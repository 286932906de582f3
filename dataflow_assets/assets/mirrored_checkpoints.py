"""The mirrored checkpoints of assets, read from Dagster's events."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg

from dataflow_assets.assets import mirror
from dataflow_assets.assets.graph import Key
from dataflow_assets.assets.metadata import CHECKPOINT
from dataflow_assets.contracts import Checkpoint


@dataclass(frozen=True)
class Mirrored:
    """The newest mirrored checkpoint of an asset, None where there is none, and when it came."""

    checkpoint: Any = None
    at: float = 0.0


def _newest_mirror(instance: dg.DagsterInstance, key: Key) -> Mirrored:
    for record in instance.fetch_materializations(dg.AssetKey(list(key)), limit=5).records:
        if mirrored := _mirror_of(record.asset_materialization, record.timestamp):
            return mirrored
    return Mirrored()


def mirrored_together(instance: dg.DagsterInstance, keys: Iterable[Key]) -> dict[Key, Mirrored]:
    """Newest mirrors of many assets, in one question wherever the newest event carries one."""
    names = {dg.AssetKey(list(key)): key for key in keys}
    newest = instance.get_latest_materialization_events(list(names)) if names else {}
    mirrored: dict[Key, Mirrored] = {}
    for name, key in names.items():
        event = newest.get(name)
        if event is None:
            mirrored[key] = Mirrored()
        else:
            carried = _mirror_of(event.asset_materialization, event.timestamp)
            mirrored[key] = carried or _newest_mirror(instance, key)
    return mirrored


def outdated_keys(instance: dg.DagsterInstance, checkpoints: Mapping[Key, Checkpoint]) -> set[Key]:
    """The assets whose mirrored checkpoint is not the one that their sink has.

    Asked in a run that has nothing new to tell, at its end: a mirror that is lost, wiped, or that a
    run which died has not written, needs an event, or sensors would ask for runs for ever.
    """
    mirrored = mirrored_together(instance, checkpoints)
    return {
        key
        for key, checkpoint in checkpoints.items()
        if mirror.version_of(mirrored[key].checkpoint) != mirror.data_version(checkpoint)
    }


def _mirror_of(event: dg.AssetMaterialization | None, at: float) -> Mirrored | None:
    value = event.metadata.get(CHECKPOINT) if event else None
    if value is None or mirror.positions(value.value) is None:
        return None
    return Mirrored(value.value, at)
