"""The closed list of functions and operators, by name. What is not here is refused by name."""

from __future__ import annotations

from collections.abc import Mapping

from dataflow_assets.languages.sql.engine.function import Function
from dataflow_assets.languages.sql.engine.functions import (
    arithmetic,
    collections,
    comparisons,
    conditions,
    encodings,
    json,
    logic,
    powers,
    regular,
    rounding,
    strings,
    times,
    written_times,
)

FUNCTIONS: Mapping[str, Function] = {
    one.name: one
    for group in (
        logic.FUNCTIONS,
        comparisons.FUNCTIONS,
        arithmetic.FUNCTIONS,
        rounding.FUNCTIONS,
        powers.FUNCTIONS,
        conditions.FUNCTIONS,
        strings.FUNCTIONS,
        regular.FUNCTIONS,
        encodings.FUNCTIONS,
        times.FUNCTIONS,
        written_times.FUNCTIONS,
        json.FUNCTIONS,
        collections.FUNCTIONS,
    )
    for one in group
}
