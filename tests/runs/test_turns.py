"""Whose turn it is, also where only the source can tell which position is behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dataflow_assets.contracts import Position, Positions
from dataflow_assets.runs.branch_turns import OpenBranch, lowest, nearer, next_turns


@dataclass(frozen=True)
class _Checkpoint:
    positions: Positions


@dataclass(frozen=True)
class _Session:
    checkpoint: _Checkpoint


def opened(**positions: Position) -> OpenBranch:
    session: Any = _Session(_Checkpoint({n.replace("_", "-"): p for n, p in positions.items()}))
    branch: Any = None
    return OpenBranch(branch, session)


def by_length(partition: str, position: Position | None, end: Position) -> bool:
    assert partition == "table"
    return len(str(position or "")) < len(str(end))


def test_the_branch_behind_catches_up_to_where_the_others_stand() -> None:
    behind, ahead = opened(table="a"), opened(table="aaa")
    (turn,) = next_turns([ahead, behind], {}, by_length)
    assert (turn.branches, turn.after, turn.until) == ((behind,), {"table": "a"}, {"table": "aaa"})
    assert turn.alone


def test_positions_that_differ_and_are_not_behind_share_no_read() -> None:
    one, other, same = opened(table="aa"), opened(table="bb"), opened(table="aa")
    turns = next_turns([one, other, same], {}, by_length)
    found = [(turn.branches, turn.after, turn.until, turn.alone) for turn in turns]
    assert found == [
        ((one, same), {"table": "aa"}, None, False),
        ((other,), {"table": "bb"}, None, False),
    ]


def test_offsets_that_are_level_share_a_read_though_one_knows_nothing_of_a_partition() -> None:
    branches = [opened(**{"0": 5, "1": 0}), opened(**{"0": 5})]
    (turn,) = next_turns(branches, {}, lambda _, position, end: (position or 0) < end)  # type: ignore[operator]
    assert (turn.branches, turn.after) == (tuple(branches), {"0": 5, "1": 0})


def test_parts_under_way_are_no_positions() -> None:
    crashed, other = opened(table="a", part_0="aaa"), opened(table="a")
    (turn,) = next_turns([crashed, other], {}, by_length)
    assert not turn.alone
    assert lowest([crashed.positions, other.positions], by_length) == {"table": "a"}


def test_the_nearer_of_two_bounds() -> None:
    assert nearer({"table": "aaa"}, {"table": "a"}, by_length) == {"table": "a"}
    assert nearer(None, {"table": "a"}, by_length) == {"table": "a"}
    assert nearer({"table": "a"}, None, by_length) == {"table": "a"}
