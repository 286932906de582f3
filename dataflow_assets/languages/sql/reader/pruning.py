"""Columns of rows that are numbered, and that nobody looks at: they are not kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dataflow_assets.languages.sql.engine.expressions import (
    Expression,
    FlinkColumn,
    looked_at,
    over_others,
)
from dataflow_assets.languages.sql.engine.ranking import Ranking
from dataflow_assets.languages.sql.engine.stages import FlinkStage


def prune(
    stages: Sequence[FlinkStage], over: Sequence[Expression]
) -> tuple[tuple[FlinkStage, ...], tuple[Expression, ...]]:
    """Stages without the columns of rankings that nobody looks at, and what is computed over them.

    Args:
        stages: each over the one before.
        over: what is computed over the last one.
    """
    found: list[FlinkStage] = []
    expressions = list(over)
    for stage in reversed(stages):
        kept, places = _without_unused(stage, expressions)
        moving = over_others(expressions, places)
        if found:
            found[-1] = found[-1].over(moving)
        else:
            over = moving
        found.append(kept)
        expressions = list(kept.expressions)
    return tuple(reversed(found)), tuple(over)


def _without_unused(
    stage: FlinkStage, over: Sequence[Expression]
) -> tuple[FlinkStage, Mapping[int, Expression]]:
    """The stage, and its columns by where they were."""
    types = stage.types
    if not isinstance(stage, Ranking):
        return stage, {at: FlinkColumn(one, at) for at, one in enumerate(types)}
    used = looked_at(over)
    first = len(stage.keys)
    ordered = {one.at for one in stage.order}
    kept = [at for at in range(len(stage.calls)) if at in ordered or first + at in used]
    new = {at: number for number, at in enumerate(kept)}
    pruned = replace(
        stage,
        calls=tuple(stage.calls[at] for at in kept),
        order=tuple(replace(one, at=new[one.at]) for one in stage.order),
    )
    places = {at: at for at in range(first)}
    places |= {first + at: first + number for at, number in new.items()}
    places[stage.number_at] = pruned.number_at
    return pruned, {at: FlinkColumn(types[at], place) for at, place in places.items()}
