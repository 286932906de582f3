"""Rows that come and go, as changes of what a stage keeps of them: all rows at once, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dataflow_assets.languages.sql.engine.changes import (
    BINARY,
    NONE,
    Ints,
    added_up,
    changes,
    concatenate,
    without_zeros,
)
from dataflow_assets.languages.sql.engine.columns import take_places
from dataflow_assets.languages.sql.engine.kept import sums
from dataflow_assets.languages.sql.engine.merging import FOLDED, Signed, aggregates
from dataflow_assets.languages.sql.engine.stages import FlinkStage
from dataflow_assets.languages.sql.engine.values import pack, pack_rows, unpack_columns

Arguments = list[Sequence[Any]]
"""Of each aggregate its arguments, by row; None where a row does not count."""


@dataclass(frozen=True)
class Spread:
    """Changes of the tables of a stage."""

    distinct: pa.Table
    groups: pa.Table


def spread(stage: FlinkStage, given: Signed) -> Spread:
    """Returns what rows that come and go are to `distinct` and to `groups` of a stage."""
    if not given.rows:
        return Spread(NONE, NONE)
    groups, arguments = unpack_columns(given.rows, 2)
    columns: Arguments = [*unpack_columns(arguments, len(stage.calls))]
    parts = []
    for at in sorted(stage.apart):
        parts.append(_values(stage, groups, at, columns[at], given.times))
        columns[at] = [None] * len(groups)
    table = without_zeros(added_up(concatenate(parts)))
    make = _fold if stage.folds else _list
    return Spread(table, make(stage, groups, columns, given.times))


def _values(
    stage: FlinkStage, groups: Sequence[bytes], at: int, column: Sequence[Any], times: Ints
) -> pa.Table:
    there = [number for number, value in enumerate(column) if value is not None]
    owners, values = take_places(groups, there), take_places(column, there)
    keys = pack_rows([owners, [at] * len(there), values])
    if stage.front:
        pairs = zip(owners, keys, strict=True)
        keys = [owner[: stage.front] + key for owner, key in pairs]
    return changes(keys, [b""] * len(there), times[there])


def _fold(stage: FlinkStage, groups: Sequence[bytes], columns: Arguments, times: Ints) -> pa.Table:
    coded = pa.array(groups, BINARY).dictionary_encode()
    numbers, count = coded.indices.to_numpy().astype(np.int64), len(coded.dictionary)
    calls = aggregates(stage)
    pairs = zip(calls, columns, strict=True)
    folded = [kept.fold(numbers, count, column, times) for kept, column in pairs]
    besides = pack_rows([[FOLDED] * count, sums(numbers, count, times).tolist(), *folded])
    nothing = pack([FOLDED, 0, *(one.empty() for one in calls)])
    counts = np.fromiter((one != nothing for one in besides), np.int64, count)
    return changes(coded.dictionary, besides, counts)


def _list(_: FlinkStage, groups: Sequence[bytes], columns: Arguments, times: Ints) -> pa.Table:
    rows = [*zip(*columns, strict=True)] if columns else [()] * len(groups)
    besides = pack_rows([rows])
    return without_zeros(added_up(changes(groups, besides, times)))
