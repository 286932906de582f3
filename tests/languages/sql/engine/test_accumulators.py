"""What many rows come to in an aggregate is what they come to one by one."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from dataflow_assets.languages.sql.engine.accumulators import Extreme, accumulator
from dataflow_assets.languages.sql.engine.aggregates import ONLY, Aggregate, result_of
from dataflow_assets.languages.sql.engine.changes import changes, latest
from dataflow_assets.languages.sql.engine.expressions import FlinkColumn
from dataflow_assets.languages.sql.engine.kept import FlinkKept
from dataflow_assets.languages.sql.engine.types import BIGINT, STRING, FlinkType
from dataflow_assets.languages.sql.engine.values import (
    pack,
    pack_rows,
    plain,
    unpack,
    unpack_columns,
)

DOUBLE, DECIMAL = FlinkType("DOUBLE"), FlinkType("DECIMAL", 38, 2)
MANY, GROUPS = 200, 3
VALUES: dict[FlinkType, list[Any]] = {
    BIGINT: [*range(-5, 5), 2**63 - 1, -(2**63)],
    DECIMAL: [1, -7, 10**37, -(10**37)],
    DOUBLE: [plain(DOUBLE)(one) for one in (0.1, -0.0, 1e308, -1e308, float("nan"), float("inf"))],
    STRING: ["a", "b", "é"],
}


def _call(name: str, kind: FlinkType) -> Aggregate:
    result = kind if name == ONLY else result_of(name, kind)
    return Aggregate(name, result, FlinkColumn(kind, 0))


def _rows(random: Random, values: list[Any], *, retracts: bool) -> list[tuple[int, Any, int]]:
    """Rows of groups; each that goes was there before."""
    there: list[tuple[int, Any]] = []
    found: list[tuple[int, Any, int]] = []
    for _ in range(MANY):
        if retracts and there and random.random() < 0.4:
            found.append((*there.pop(random.randrange(len(there))), -1))
            continue
        row = random.randrange(GROUPS), random.choice([None, *values])
        there.append(row)
        found.append((*row, 1))
    return found


def _added(one: FlinkKept, rows: list[tuple[int, Any, int]]) -> list[list[Any]]:
    found = [one.empty() for _ in range(GROUPS)]
    for group, value, times in rows:
        if value is not None:
            one.add(found[group], value, times)
    return found


def _folded(one: FlinkKept, rows: list[tuple[int, Any, int]], size: int) -> list[list[Any]]:
    """Some rows at once, packed in between, as they are sent from task to task."""
    found = [one.empty() for _ in range(GROUPS)]
    for first in range(0, len(rows), size):
        groups, values, times = zip(*rows[first : first + size], strict=True)
        parts = one.fold(np.array(groups), GROUPS, values, np.array(times))
        for group, part in zip(found, parts, strict=True):
            one.merge(group, unpack(pack(part)), 1)
    return found


@pytest.mark.parametrize("retracts", [False, True])
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("COUNT", STRING),
        ("SUM", BIGINT),
        ("AVG", BIGINT),
        ("SUM", DECIMAL),
        ("SUM", DOUBLE),
        ("MIN", BIGINT),
        ("MAX", STRING),
        ("MAX", DOUBLE),
        (ONLY, STRING),
    ],
)
def test_folded_rows_are_kept_as_those_that_are_added(
    name: str, kind: FlinkType, *, retracts: bool
) -> None:
    call = _call(name, kind)
    one, random = accumulator(call, retracts=retracts), Random(f"{name}{kind}{retracts}")
    values = [True] if call.counts else VALUES[kind]
    for size in (1, 7, MANY):
        rows = _rows(random, values, retracts=retracts and not isinstance(one, Extreme))
        added, folded = _added(one, rows), _folded(one, rows, size)
        results = [one.result(group) for group in added]
        assert [str(one.result(group)) for group in folded] == [*map(str, results)]
        assert [*map(pack, folded)] == [*map(pack, added)]


def test_of_several_changes_of_a_key_the_latest_counts_and_of_these_the_last() -> None:
    given = changes([b"a", b"b", b"a", b"a", b"b"], [b"1", b"2", b"3", None, b"5"], [7, 9, 8, 8, 1])
    assert latest(given).to_pylist() == [
        {"k": b"b", "x": b"2", "n": 9},
        {"k": b"a", "x": None, "n": 8},
    ]


@pytest.mark.parametrize("width", [1, 3, 15, 16, 40, 70_000])
def test_rows_are_read_by_their_columns(width: int) -> None:
    values: list[Any] = [None, 2**70, "x", b"y", [1, [None]], True, -1]
    columns = [[values[(row + at) % len(values)] for row in range(3)] for at in range(width)]
    assert unpack_columns(pack_rows(columns), width) == columns
