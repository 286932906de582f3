"""Positions in a checkpoint of the DataFlow Operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dataflow_assets.connectors.postgresql.cdc.options import place_of
from dataflow_assets.connectors.postgresql.cdc.position import Lsn, Reached
from dataflow_assets.errors import PermanentError


def position_of(document: Mapping[str, Any]) -> Reached:
    """Returns where the operator's flow was.

    Args:
        document: the object of this source in the operator's checkpoint.

    Returns:
        The place behind the transaction that was stored last, with the tables that were loaded.

    Raises:
        PermanentError: its first load was not finished, or it names no place in a log.
    """
    acked, snapshot = document.get("lastAckedLSN"), document.get("snapshotLSN")
    at = lsn_text(document)
    if document.get("phase") == "snapshot" or not isinstance(at, str):
        raise PermanentError(
            "the checkpoint of the DataFlow Operator says that its first load was not finished: "
            "start without it, the tables are loaded again"
        )
    try:
        place = Lsn.parse(at)
    except ValueError:
        raise PermanentError(f"lastAckedLSN {at} is not a place in a log") from None
    if acked and acked != snapshot:  # where the commit of a transaction begins that is stored
        place = Lsn(place.value + 1)
    return Reached(place, _loaded_tables(document.get("snapshotCompletedTables")))


def lsn_text(document: Mapping[str, Any]) -> object:
    """The place as the checkpoint writes it: behind it is what the target lacks."""
    return document.get("lastAckedLSN") or document.get("snapshotLSN")


def _loaded_tables(tables: object) -> frozenset[str] | None:
    """The tables that are loaded; None: nothing tells, and those of the manifest are."""
    if not isinstance(tables, list):
        return None
    return frozenset(".".join(place_of(str(table))) for table in tables)
