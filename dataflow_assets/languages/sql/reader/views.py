"""An INSERT with state: what is kept of the rows of its table, and where that is."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pydantic import ValidationError

from dataflow_assets.connectors.kafka.source.source import KafkaSource
from dataflow_assets.languages.common.tokens import Unreadable
from dataflow_assets.languages.sql.engine.expressions import (
    Expression,
    FlinkColumn,
    looked_at,
    over_others,
)
from dataflow_assets.languages.sql.engine.plan import Cell, FlinkOutput
from dataflow_assets.languages.sql.engine.ranking import Ranking
from dataflow_assets.languages.sql.engine.stages import FlinkStage
from dataflow_assets.languages.sql.engine.types import STRING, FlinkType
from dataflow_assets.languages.sql.engine.united import TableRows
from dataflow_assets.languages.sql.engine.view import ViewPlan
from dataflow_assets.languages.sql.reader.changelogs import (
    check_conditions,
    check_grouped_changes,
    check_upserts,
)
from dataflow_assets.languages.sql.reader.inserts import (
    cells_of,
    outputs_of,
    readable,
    sharing,
    sharing_parts,
    times_of,
)
from dataflow_assets.languages.sql.reader.ranked_keys import by_key
from dataflow_assets.languages.sql.reader.ranking import arrival_cells
from dataflow_assets.languages.sql.reader.relation import Relation, column_at
from dataflow_assets.languages.sql.reader.settings import IDLE, TTL, milliseconds
from dataflow_assets.languages.sql.reader.syntax import FlinkInsert
from dataflow_assets.languages.sql.reader.tables import FlinkDeclared
from dataflow_assets.languages.sql.reader.windows import bound_at, check_grouped, implied_columns
from dataflow_assets.languages.sql.state.options import StateLocation
from dataflow_assets.languages.sql.state.source import ViewSource
from dataflow_assets.sdk.local_folders import ROOT

LOCATION = "dataflow.stateLocation"
ACCEPTED = "dataflow.acceptState"
EQUAL_KEYS = "dataflow.acceptEqualKeys"
VARIABLE = "DATAFLOW_STATE"


def view(
    insert: FlinkInsert, relation: Relation, target: FlinkDeclared, settings: Mapping[str, str]
) -> ViewPlan:
    layouts = readable(insert, relation)
    relation = relation.limit_rankings()
    outputs = outputs_of(insert, relation, target, settings)
    check_grouped(relation.windows, relation.stages, insert.query.place)
    check_grouped_changes(insert, relation)
    check_conditions(relation)
    appends = not relation.changes and not target.table.key
    if isinstance(relation.stages[-1], Ranking) and not appends:
        relation, outputs = by_key(insert, relation, target, outputs)
    elif not appends:
        _check_key(insert, relation, target, outputs)
    cells = (*cells_of(relation.table), *arrival_cells(relation.stages[0]))
    conditions = [] if relation.where is None else [relation.where]
    kept, over = prune(relation.stages, [*conditions, *(one.expression for one in outputs)])
    kept, united = _unite(insert, relation, kept)
    stages = tuple(sharing_parts(insert, one) for one in kept)
    parts, found = sharing(insert, over)
    computed = iter(found)
    return ViewPlan(
        value=layouts.value,
        key=layouts.key,
        cells=cells,
        stages=stages,
        having=next(computed) if conditions else None,
        outputs=tuple(replace(one, expression=next(computed)) for one in outputs),
        shared=parts,
        primary=tuple(_primary(relation.table, cells)),
        times=times_of(target, insert),
        drops_nulls=settings.get("table.exec.sink.not-null-enforcer") == "DROP",
        zone=settings.get("table.local-time-zone", "UTC"),
        windows=relation.windows,
        idle=milliseconds(settings.get(IDLE, "0")) or 0,
        expires=milliseconds(settings.get(TTL, "0")) or 0,
        unnests=tuple(sharing_parts(insert, one) for one in relation.unnests),
        united=united,
    )


def _unite(
    insert: FlinkInsert, relation: Relation, stages: tuple[FlinkStage, ...]
) -> tuple[tuple[FlinkStage, ...], tuple[TableRows, ...]]:
    """Stages over the columns that the first one looks at, and how each table has them."""
    if not relation.united:
        return stages, ()
    first, *others = stages
    used = sorted(looked_at(first.expressions))
    places = {
        at: FlinkColumn(relation.united[0].columns[at][1].type, n) for n, at in enumerate(used)
    }
    first = first.over(over_others(first.expressions, places))
    return (first, *others), tuple(_table_rows(insert, one, used) for one in relation.united)


def _table_rows(insert: FlinkInsert, relation: Relation, used: Sequence[int]) -> TableRows:
    layouts = readable(insert, relation)
    conditions = [] if relation.where is None else [relation.where]
    parts, found = sharing(insert, [*conditions, *(relation.columns[at][1] for at in used)])
    return TableRows(
        value=layouts.value,
        key=layouts.key,
        cells=tuple(cells_of(relation.table)),
        unnests=tuple(sharing_parts(insert, one) for one in relation.unnests),
        where=found[0] if conditions else None,
        selected=found[len(conditions) :],
        shared=parts,
    )


def _primary(table: FlinkDeclared, cells: tuple[Cell, ...]) -> Iterator[tuple[int, FlinkType]]:
    places = {one.name: at for at, one in enumerate(cells)}
    types = {one.name: one.type for one in table.stored_columns}
    for name in table.table.key:
        yield places[name], types[name] or STRING


def _check_key(
    insert: FlinkInsert, relation: Relation, target: FlinkDeclared, outputs: tuple[FlinkOutput, ...]
) -> None:
    """Groups are rows of the target: one for each of its keys."""
    check_upserts(insert, target, "the query")
    keys = relation.stages[-1].keys
    places = [_key_place(relation, one.expression) for one in outputs if one.key]
    plain = all(at is None or 0 <= at < len(keys) for at in places)
    key_columns = {at for at in places if at is not None}
    if not plain or key_columns | implied_columns(
        relation.windows, relation.bounds, key_columns
    ) != set(range(len(keys))):
        message = (
            f"the PRIMARY KEY of {target.name} ({', '.join(target.table.key)}) must be the columns "
            "of GROUP BY, or DISTINCT, as they are: with another key several groups could be one "
            "row"
        )
        raise Unreadable(insert.table_place, message)


def _key_place(relation: Relation, key: Expression) -> int | None:
    at = bound_at(relation.windows, relation.bounds, key)
    return column_at(key) if at is None else at


def source(
    insert: FlinkInsert,
    messages: Sequence[KafkaSource],
    plan: ViewPlan,
    settings: Mapping[str, str],
) -> ViewSource:
    """The view as the source of a flow. Raises Unreadable where its state has no place."""
    origin, path = _place_of_state(settings)
    if not path:
        message = (
            f"the query keeps state, and has no place for it: SET '{LOCATION}' = "
            f"'s3://bucket/prefix' (or a folder below {ROOT}), or set {VARIABLE}, or {ROOT}, in "
            "the environment"
        )
        raise Unreadable(insert.place, message)
    try:
        location = StateLocation.model_validate({"path": path})
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        message = f"the place of the state, {path}: {reason} ({origin} says where the state is)"
        raise Unreadable(insert.place, message) from None
    first, *others = messages
    return ViewSource(
        source=first,
        others=tuple(others),
        view=plan,
        location=location,
        accepted=settings.get(ACCEPTED, ""),
        equal_keys=frozenset(one.strip() for one in settings.get(EQUAL_KEYS, "").split(";")),
    )


def _place_of_state(settings: Mapping[str, str]) -> tuple[str, str]:
    root = os.environ.get(ROOT)
    candidates = {
        LOCATION: settings.get(LOCATION),
        VARIABLE: os.environ.get(VARIABLE),
        ROOT: f"{root.rstrip('/')}/_state" if root else None,
    }
    return next(((name, place) for name, place in candidates.items() if place), ("", ""))


def prune(
    stages: Sequence[FlinkStage], over: Sequence[Expression]
) -> tuple[tuple[FlinkStage, ...], tuple[Expression, ...]]:
    """Stages without the columns of rankings that nobody looks at, and what is computed over them.

    Args:
        stages: each over the one before.
        over: what is computed over the last one.
    """
    pruned: list[FlinkStage] = []
    expressions = list(over)
    for stage in reversed(stages):
        kept, places = _without_unused(stage, expressions)
        moving = over_others(expressions, places)
        if pruned:
            pruned[-1] = pruned[-1].over(moving)
        else:
            over = moving
        pruned.append(kept)
        expressions = list(kept.expressions)
    return tuple(reversed(pruned)), tuple(over)


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
