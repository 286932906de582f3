"""Output of `dataflow status`: a table on a terminal, plain lines elsewhere, JSON."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dataflow_assets.cli.console import err, out
from dataflow_assets.contracts import Checkpoint, Lag, Position, Positions
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.runs.statuses import Answer, Status

if TYPE_CHECKING:
    from dataflow_assets.assets.drive_states import DriveState

COLUMNS = (
    ("flow", False),
    ("into", False),
    ("checkpoint", False),
    ("source end", False),
    ("behind", True),
    ("seconds", True),
    ("rows", True),
    ("rejected", True),
    ("last commit", True),
    ("epoch", True),
    ("run", False),
    ("state", False),
    ("lane", False),
)
MOST_POSITIONS = 4
LONGEST_POSITION = 60  # characters
Describe = Callable[[BaseException], str]


Driven = Mapping[str, "DriveState"]
"""By the id of a flow how its lane fares with it."""


def as_json(answers: Sequence[Answer], describe: Describe, driven: Driven) -> dict[str, Any]:
    return {"flows": [_answer(answer, describe, driven) for answer in answers]}


def as_rows(answers: Sequence[Answer], driven: Driven) -> list[list[str]]:
    """The cells of the table, in the order of `COLUMNS`; what is furthest behind comes first.

    Above them are the branches of which nothing is known.
    """
    unknown = [
        [*_unknown_row(answer, branch), _state(answer, driven), _lane(answer, driven)]
        for answer in answers
        for branch in answer.flow.branches
        if answer.error is not None and branch.id not in {one.branch for one in answer.found}
    ]
    rows = [(answer, status) for answer in answers for status in answer.found]
    rows.sort(key=lambda row: _urgency(row[1].lag), reverse=True)
    shown = [[*_row(*row), _shown_state(*row, driven), _lane(row[0], driven)] for row in rows]
    return unknown + shown


def _urgency(lag: Lag) -> tuple[float, int]:
    return math.inf if lag.seconds is None else lag.seconds, lag.records


def as_summary(answers: Sequence[Answer], driven: Driven) -> str:
    """Returns how many flows there are, and how many of them stand how.

    It is the last line: those that fail have been said on stderr, hundreds of lines above.
    """
    unknown = sum(not answer.is_known for answer in answers)
    late = sum(answer.error is None and answer.is_late for answer in answers)
    in_time = len(answers) - unknown - late
    flows = "1 flow" if len(answers) == 1 else f"{len(answers)} flows"
    summary = f"{flows}: {in_time} in time, {late} late, {unknown} not known"
    failing = sum(a.flow.id in driven and driven[a.flow.id].failing for a in answers)
    return summary + (f"; {failing} of them failing" if failing else "")


def as_lines(answers: Sequence[Answer], driven: Driven) -> Iterator[str]:
    """The table in plain text, columns aligned; nothing without rows."""
    rows = [[title for title, _ in COLUMNS], *as_rows(answers, driven)]
    if len(rows) == 1:
        return
    widths = [max(len(row[index]) for row in rows) for index in range(len(COLUMNS))]
    for row in rows:
        cells = zip(row, widths, COLUMNS, strict=True)
        aligned = (c.rjust(width) if right else c.ljust(width) for c, width, (_, right) in cells)
        yield "  ".join(aligned).rstrip()


def as_blocks(answers: Sequence[Answer], driven: Driven) -> Iterator[str]:
    """A few short lines for each branch, for a terminal that is too narrow for the table."""
    for flow, into, *cells in as_rows(answers, driven):
        position, end, behind, seconds, rows, rejected, committed, epoch, run, state, lane = cells
        yield f"{flow} -> {into}"
        yield f"  behind by {behind} records, {seconds} s; {rows} rows, {rejected} rejected"
        yield f"  checkpoint {position}; source end {end}"
        yield f"  last commit {committed}; epoch {epoch}, run {run}"
        if words := [one for one in (state, lane) if one != "-"]:
            yield f"  {', '.join(words)}"


def show(answers: Sequence[Answer], describe: Describe, driven: Driven) -> None:
    """Prints what is wrong first: flows that fail or cannot be asked, on stderr.

    Then the others, those furthest behind first; one line at the end counts the flows.
    """
    for answer in answers:
        if (state := driven.get(answer.flow.id)) is not None and state.failing:
            err(f"{answer.flow.id}: {state.text}")
    for answer in answers:
        if answer.error is not None:
            text = " ".join(describe(answer.error).split())
            err(text if answer.flow.id in text else f"{answer.flow.id}: {text}")
    lines = list(as_lines(answers, driven))
    if not sys.stdout.isatty():
        _print(lines)
    elif max(map(len, lines), default=0) <= shutil.get_terminal_size().columns:
        _show_table(answers, driven)
    else:
        _print(as_blocks(answers, driven))
    out(as_summary(answers, driven))


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        out(line)


def _show_table(answers: Sequence[Answer], driven: Driven) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for title, right in COLUMNS:
        table.add_column(title, justify="right" if right else "left", overflow="fold")
    for row in as_rows(answers, driven):
        table.add_row(*map(escape, row))
    if table.row_count:
        Console(highlight=False).print(table)


def _unknown_row(answer: Answer, branch: Branch) -> list[str]:
    columns = len(COLUMNS) - 4  # without those of the flow, its target, its state and its lane
    return [_name(answer.flow), str(branch.address), "not known", *["-"] * (columns - 1)]


def _name(flow: Flow) -> str:
    return f"{flow.id}{' (suspended)' if flow.suspended else ''}"


def _row(answer: Answer, found: Status) -> list[str]:
    checkpoint = found.checkpoint or Checkpoint(epoch=0)
    totals = checkpoint.totals
    return [
        _name(answer.flow),
        str(found.address),
        _where(found.checkpoint),
        _positions(found.lag.ends),
        _lag_text(found.lag),
        "?" if found.lag.seconds is None else f"{found.lag.seconds:.0f}",
        f"{totals.rows:,}",
        f"{totals.rejected:,}",
        _age(checkpoint.committed_at),
        str(checkpoint.epoch) if checkpoint.epoch else "-",
        checkpoint.run_id or "-",
    ]


def _where(checkpoint: Checkpoint | None) -> str:
    """The positions; of a flow that never ran those at which the program before it has stopped."""
    if checkpoint is None:
        return "never run"
    positions = _positions(checkpoint.positions)
    return positions if checkpoint.epoch else f"never run; begins at {positions}"


def _shown_state(answer: Answer, found: Status, driven: Driven) -> str:
    """With those of its connector: equal ones of tasks are counted."""
    state, members = _state(answer, driven), dict(found.lag.connector)
    if not members:
        return state
    connector = members.pop("connector")
    tasks = ", ".join(f"{n} {name}" for name, n in sorted(Counter(members.values()).items()))
    return f"{state}, connector {connector}" + (f" (tasks: {tasks})" if tasks else "")


def _state(answer: Answer, driven: Driven) -> str:
    state = driven.get(answer.flow.id)
    if answer.flow.pause_reason():
        return "Stopped"
    return "-" if state is None else state.name


def _lane(answer: Answer, driven: Driven) -> str:
    state = driven.get(answer.flow.id)
    return answer.flow.pause_reason() or ("-" if state is None else state.text)


def _lag_text(lag: Lag) -> str:
    """Records; of a log its bytes as well, and what its server keeps for the flow."""
    text = f"{lag.records:,}"
    if lag.bytes is not None:
        text += f" ({_size(lag.bytes)})"
    return text + (f", {_size(lag.held)} kept" if lag.held is not None else "")


def _size(count: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def _positions(positions: Positions) -> str:
    listed = [f"{name}:{_show(position)}" for name, position in sorted(positions.items())]
    more = [f"and {len(listed) - MOST_POSITIONS} more"] if len(listed) > MOST_POSITIONS else []
    return " ".join([*listed[:MOST_POSITIONS], *more]) or "-"


def _show(position: Position) -> str:
    text = str(position)
    if text.startswith("{"):
        members = json.loads(text).items()
        text = ", ".join(shown for name, value in members if (shown := _member(name, value)))
    return text if len(text) <= LONGEST_POSITION else f"{text[: LONGEST_POSITION - 3]}..."


def _member(name: str, value: object) -> str:
    if isinstance(value, dict) and all(isinstance(one, int) for one in value.values()):
        value = " ".join(f"{key}={one}" for key, one in value.items())
    is_shown = isinstance(value, str | int) and not isinstance(value, bool) and value != ""
    return f"{name} {value}" if is_shown else ""


def _age(when: datetime | None) -> str:
    if when is None:
        return "-"
    seconds = max((datetime.now(UTC) - when).total_seconds(), 0.0)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def _answer(answer: Answer, describe: Describe, driven: Driven) -> dict[str, Any]:
    flow, state = answer.flow, driven.get(answer.flow.id)
    return {
        "flow": flow.id,
        "source": str(flow.source_address),
        "suspended": flow.suspended,
        "paused": flow.pause_reason() or None,
        "error": None if answer.error is None else describe(answer.error),
        "state": _state(answer, driven),
        "lane": None if state is None else {"text": state.text, "failing": state.failing},
        "branches": [_branch(status) for status in answer.found],
    }


def _branch(found: Status) -> dict[str, Any]:
    checkpoint = found.checkpoint
    return {
        "branch": found.branch,
        "asset": str(found.address),
        "source_end": dict(found.lag.ends),
        "lag_records": found.lag.records,
        "lag_seconds": None if found.lag.seconds is None else round(found.lag.seconds, 3),
        "lag_bytes": found.lag.bytes,
        "held_bytes": found.lag.held,
        "connector": dict(found.lag.connector) or None,
        "checkpoint": _checkpoint(checkpoint) if checkpoint and checkpoint.epoch else None,
        "inherited": dict(checkpoint.positions) if checkpoint and not checkpoint.epoch else None,
    }


def _checkpoint(checkpoint: Checkpoint) -> dict[str, Any]:
    committed = checkpoint.committed_at
    return {
        "positions": dict(checkpoint.positions),
        "rows": checkpoint.totals.rows,
        "rejected": checkpoint.totals.rejected,
        "bytes": checkpoint.totals.bytes,
        "committed_at": committed.isoformat() if committed else None,
        "epoch": checkpoint.epoch,
        "run": checkpoint.run or None,
    }
