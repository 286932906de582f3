"""The checkpoint as people and sensors see it: a JSON value, and its hash.

The sink's checkpoint is the truth, this is its mirror: losing it costs one look at the sink.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from dataflow_assets.contracts import Checkpoint

VERSION = 1


def to_json(checkpoint: Checkpoint) -> dict[str, Any]:
    """Everything a sensor needs to know, and what a person may want to."""
    at = checkpoint.committed_at
    return {
        "version": VERSION,
        "positions": dict(checkpoint.positions),
        "totals": asdict(checkpoint.totals),
        "epoch": checkpoint.epoch,
        "source": checkpoint.source,
        "target": checkpoint.target,
        "run": checkpoint.run,
        "committed_at": at.isoformat() if at else None,
    }


def positions(value: Any) -> Mapping[str, int | str] | None:
    """The positions of a mirrored checkpoint; None when it is none of ours."""
    if not isinstance(value, dict) or value.get("version") != VERSION:
        return None
    value_positions = value.get("positions")
    return value_positions if isinstance(value_positions, dict) and value_positions else None


def data_version(checkpoint: Checkpoint) -> str:
    """Hash of what the table holds: of positions and identities, not of epochs and runs."""
    return _hash(checkpoint.positions, checkpoint.source, checkpoint.target)


def version_of(value: Any) -> str | None:
    if positions(value) is None:
        return None
    return _hash(value["positions"], value.get("source"), value.get("target"))


def _hash(where: Mapping[str, int | str], source: str | None, target: str | None) -> str:
    content = json.dumps([dict(where), source, target], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]
