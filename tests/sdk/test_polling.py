"""Positions of polled tables as text, and the older forms of the DataFlow Operator's."""

from __future__ import annotations

from typing import Any

import pytest

from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.polling.overlap import is_due, late_from
from dataflow_assets.sdk.sql_table.positions import (
    START,
    Part,
    PolledPosition,
    Rows,
    moment,
    position_of_operator,
)


@pytest.mark.parametrize(
    ("position", "text"),
    [
        (START, '{"state":"load"}'),
        (PolledPosition("rows", "2020", "5"), '{"change":"2020","order":"5","state":"rows"}'),
        (
            PolledPosition("load", "2020", "5", key="3", begun=True, unordered=2),
            '{"begun":true,"change":"2020","key":"3","order":"5","state":"load","unordered":2}',
        ),
    ],
)
def test_equal_positions_are_equal_texts(position: PolledPosition, text: str) -> None:
    assert position.dump() == text
    assert PolledPosition.parse(text) == position


@pytest.mark.parametrize("text", ["5", "x", '{"state":"rows","lsn":"0/1"}', "[1]"])
def test_what_is_no_position_says_what_to_do(text: str) -> None:
    with pytest.raises(PermanentError, match="dataflow reset"):
        PolledPosition.parse(text)


@pytest.mark.parametrize(
    "part",
    [
        Part("oid", None),
        Part(None, Rows(("a", "1"), ("b", None))),
        Part("oid", Rows(upto=("b", "2"), load=True, low="1", high="2")),
    ],
)
def test_parts_survive_their_text(part: Part) -> None:
    assert Part.parse(part.dump()) == part


@pytest.mark.parametrize(
    ("text", "digits", "expected"),
    [
        ("2026-01-02T03:04:05Z", 6, "2026-01-02 03:04:05+00:00"),
        ("2026-01-02 03:04:05", 6, "2026-01-02 03:04:05+00:00"),
        ("2026-01-02T03:04:05.123456789Z", 6, "2026-01-02 03:04:05.123456+00:00"),
        ("2026-01-02T03:04:05.123456789Z", 9, "2026-01-02 03:04:05.123456789+00:00"),
        ("2026-01-02T05:04:05.5+02:00", 6, "2026-01-02 03:04:05.500000+00:00"),
        ("2026-01-02", 6, "2026-01-02 00:00:00+00:00"),
    ],
)
def test_points_in_time(text: str, digits: int, expected: str) -> None:
    assert moment(text, digits) == expected


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"lastReadID": 7}, PolledPosition("rows", None, "7")),
        ({"lastReadID": 7.0}, PolledPosition("rows", None, "7")),
        ({"lastReadOrderByValue": "k"}, PolledPosition("rows", None, "k")),
        (
            {"lastReadID": "k", "lastReadTime": "2026-01-02 03:04:05"},
            PolledPosition("rows", "2026-01-02 03:04:05+00:00", "k"),
        ),
        (
            {"lastReadChangeTime": "2026-01-02T03:04:05.25Z"},
            PolledPosition("rows", "2026-01-02 03:04:05.250000+00:00", None),
        ),
    ],
)
def test_checkpoints_of_the_original_are_taken_over(
    document: dict[str, Any], expected: PolledPosition
) -> None:
    assert position_of_operator(document, "clickhouse") == expected


@pytest.mark.parametrize(
    "document",
    [{}, {"lsn": "0/1"}, {"lastReadID": None}, {"lastReadTime": "soon"}, {"lastReadID": [1]}],
)
def test_what_is_no_checkpoint_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(PermanentError):
        position_of_operator(document, "clickhouse")


READ = "2026-01-02 03:04:06+00:00"
CHANGED = "2026-01-02 03:04:05+00:00"


@pytest.mark.parametrize(
    ("position", "since", "due"),
    [
        (PolledPosition("rows", CHANGED, "1", read_at=READ), "2026-01-02 03:04:01+00:00", True),
        (PolledPosition("rows", CHANGED, "1", read_at=READ, sweeping=True), None, True),
        (PolledPosition("rows", CHANGED, "1"), None, False),  # of a checkpoint that was taken over
        (PolledPosition("rows", CHANGED, "1", read_at="2026-01-02 03:04:10+00:00"), None, False),
        (PolledPosition("rows", None, "1", read_at=READ), None, False),
        (PolledPosition("rows", "-infinity", "1", read_at=READ), None, False),
        (PolledPosition("rows", "0044-03-15 12:00:00+00 BC", "1", read_at=READ), None, False),
        (PolledPosition("rows", "-0043-03-15 12:00:00.000000", "1", read_at=READ), None, False),
    ],
    ids=[
        "late ones may come",
        "in the middle",
        "nobody knows when",
        "over",
        "no changes",
        "never changed",
        "before Christ",
        "the same elsewhere",
    ],
)
def test_what_may_come_late_is_read_again(
    position: PolledPosition, since: str | None, due: bool
) -> None:
    assert late_from(position, 5) == since
    assert late_from(position, 0) is None
    assert is_due(position, 5, "2026-01-02 03:04:10+00:00") == due
    assert not is_due(position, 5, "2026-01-02 03:04:09+00:00")
