"""The stored checkpoints of many branches in one database, by one connection."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from dataflow_assets.contracts import Checkpoint, Target
from dataflow_assets.errors import DataflowError
from dataflow_assets.sdk.database import DatabaseTable
from dataflow_assets.sdk.server_failure import ServerFailure
from dataflow_assets.sdk.sink.state import BranchState

Link = TypeVar("Link")
States = Mapping[str, BranchState]


def peek_by_schema(
    asked: Sequence[tuple[DatabaseTable, Target]],
    link: AbstractContextManager[Link],
    read: Callable[[Link, str, Sequence[Target]], States],
) -> list[Checkpoint | DataflowError | None]:
    """Asks one question for each schema; no epoch is taken.

    Called by sinks in `peek_together`.

    Args:
        asked: each branch with its sink.
        link: connects when it is entered.
        read: the states that a schema holds of branches, by their ids.

    Returns:
        For each the checkpoint, the error that it would have raised, or None where none is stored.
    """
    schemas = defaultdict[str, list[Target]](list)
    for sink, target in asked:
        schemas[sink.place()[0]].append(target)
    found = dict[str, States | ServerFailure]()
    try:
        with link as connected:
            for schema, targets in schemas.items():
                try:
                    found[schema] = read(connected, schema, targets)
                except ServerFailure as failure:
                    found[schema] = failure
    except ServerFailure as failure:
        found = dict.fromkeys(schemas, failure)
    answers = list[Checkpoint | DataflowError | None]()
    for sink, target in asked:
        states = found[sink.place()[0]]
        if isinstance(states, ServerFailure):
            answers.append(states.error(f"reading the checkpoint of {sink.address()}"))
        else:
            state = states.get(target.id)
            answers.append(state.for_readers if state and state.is_known else None)
    return answers
