"""Snapshots that a reader of the table has not come to yet: they must not expire under it."""

from __future__ import annotations

from datetime import UTC, datetime

from dataflow_assets.connectors.iceberg.source.position import Position
from dataflow_assets.contracts import Positions

_EPOCH = datetime.fromtimestamp(0, UTC)


def unread_since(positions: Positions) -> datetime | None:
    """When the snapshot was committed from which a reader at these positions goes on.

    Of the parts of an unfinished span the earliest counts. None for a reader that begins with the
    snapshot that is current then.
    """
    places = [Position.parse(text) for text in positions.values()]
    return min((_committed(place) for place in places if place.snapshot is not None), default=None)


def _committed(position: Position) -> datetime:
    return datetime.fromisoformat(position.at) if position.at else _EPOCH
