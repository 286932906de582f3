"""Output of `dataflow status --offsets`: where each task of a source has come to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dataflow_assets.cli.console import err, out
from dataflow_assets.contracts import Position
from dataflow_assets.languages.promises import ListsOffsets, Offset
from dataflow_assets.runs.statuses import Answer, Status


def as_json(answers: Sequence[Answer], describe: Callable[[BaseException], str]) -> dict[str, Any]:
    return {
        "flows": [
            {
                "flow": answer.flow.id,
                "error": None if answer.error is None else describe(answer.error),
                "branches": [
                    {
                        "branch": status.branch,
                        "offsets": [
                            {"task": one.task, "key": one.key, "value": one.value}
                            for one in _offsets(answer, status)
                        ],
                    }
                    for status in answer.found
                ],
            }
            for answer in answers
        ]
    }


def show(answers: Sequence[Answer], describe: Callable[[BaseException], str]) -> None:
    """Prints a line for each offset; what is wrong with flows comes first, on stderr."""
    for answer in answers:
        if answer.error is not None:
            err(f"{answer.flow.id}: {' '.join(describe(answer.error).split())}")
    for answer in answers:
        for line in _lines(answer):
            out(line)


def _lines(answer: Answer) -> Iterator[str]:
    for status in answer.found:
        head = f"{status.flow} -> {status.address}"
        offsets = _offsets(answer, status)
        if not offsets:
            yield f"{head}: no offsets yet"
        for one in offsets:
            yield f"{head}: TASK_ID {one.task} KEY {_text(one.key)} VALUE {_text(one.value)}"


def _offsets(answer: Answer, found: Status) -> Sequence[Offset]:
    positions = found.checkpoint.positions if found.checkpoint else {}
    source = answer.flow.source
    if isinstance(source, ListsOffsets):
        return source.offsets(positions)
    return [
        Offset(task, {"partition": name}, _value_of(position))
        for task, (name, position) in enumerate(sorted(positions.items()))
    ]


def _value_of(position: Position) -> Mapping[str, Any]:
    """A position that is a JSON object is the value itself."""
    try:
        value = json.loads(position) if isinstance(position, str) else None
    except json.JSONDecodeError:
        value = None
    return value if isinstance(value, dict) else {"offset": position}


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
