"""Which columns of a source a column of the target is made from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dataflow_assets.flow import Branch, Flow
from dataflow_assets.records.chain import Transformation
from dataflow_assets.records.step import Origins


def origins(flow: Flow, branch: Branch, columns: Iterable[str]) -> dict[str, frozenset[str]]:
    """Columns of the source by column of the target, as far as the steps allow to tell.

    Columns that steps fill by themselves, and bodies that are stored whole, have none.
    """
    if branch.sink.takes == "messages" or branch.sink.traits.whole_bodies:
        return {}
    by_column = {column: _origins(flow.transformations, column) for column in columns}
    return {column: names for column, names in by_column.items() if names}


def _origins(transformations: Sequence[Transformation], column: str) -> Origins:
    """From the last step to the first."""
    names = frozenset({column})
    for one in reversed(transformations):
        before = _before(one, names)
        if before is None:
            return None
        names = before
    return names


def _before(one: Transformation, names: frozenset[str]) -> Origins:
    """A step behind a condition may have left the record as it was."""
    sources = [one.step.origins(name) for name in names]
    if None in sources:
        return None
    kept = names if one.when is not None else frozenset[str]()
    return kept.union(*(each for each in sources if each is not None))
