"""What a checkpoint of the DataFlow Operator says about this source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dataflow_assets.connectors.postgresql.cdc.position import Lsn, Reached
from dataflow_assets.errors import PermanentError


def reached(document: Mapping[str, Any]) -> Reached:
    """Where the operator's flow was.

    Args:
        document: the object of this source in the operator's checkpoint.

    Raises:
        PermanentError: its first load was not finished, or it names no place in a log.
    """
    at = document.get("lastAckedLSN") or document.get("snapshotLSN")
    if document.get("phase") == "snapshot" or not isinstance(at, str):
        raise PermanentError(
            "the checkpoint of the DataFlow Operator says that its first load was not finished: "
            "start without it, the tables are loaded again"
        )
    try:
        return Reached(Lsn.parse(at))
    except ValueError:
        raise PermanentError(f"lastAckedLSN {at} is not a place in a log") from None
