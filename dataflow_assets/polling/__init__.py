"""Polled tables: how far one has been read, and what is read next (reference 2.2.2)."""

from dataflow_assets.polling.planning import Planner, Polled, Step, end, is_behind, seconds
from dataflow_assets.polling.positions import (
    NOTHING,
    PARTITION,
    START,
    Pair,
    Part,
    Position,
    Rows,
    adopted,
    moment,
)

__all__ = [
    "NOTHING",
    "PARTITION",
    "START",
    "Pair",
    "Part",
    "Planner",
    "Polled",
    "Position",
    "Rows",
    "Step",
    "adopted",
    "end",
    "is_behind",
    "moment",
    "seconds",
]
