"""The closed list of functions and operators, by name. What is not here is refused by name."""

from __future__ import annotations

from collections.abc import Mapping

from dataflow_assets.sql.function import Function
from dataflow_assets.sql.functions import (
    arithmetic,
    collections,
    comparisons,
    conditions,
    json,
    logic,
    strings,
    times,
)

FUNCTIONS: Mapping[str, Function] = {
    one.name: one
    for group in (
        logic.FUNCTIONS,
        comparisons.FUNCTIONS,
        arithmetic.FUNCTIONS,
        conditions.FUNCTIONS,
        strings.FUNCTIONS,
        times.FUNCTIONS,
        json.FUNCTIONS,
        collections.FUNCTIONS,
    )
    for one in group
}
