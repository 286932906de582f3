"""Digests of queries, as states and hashes of flows hold them.

The table says which classes a plan may be made of. Tags and stored names never change: a state
with another digest is refused as one of another query.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from dataflow_assets.languages.common.canonical import Form, Forms
from dataflow_assets.languages.sql.engine.aggregates import Aggregate
from dataflow_assets.languages.sql.engine.bytes.layout import ChangeLayout, FlinkLayout
from dataflow_assets.languages.sql.engine.expressions import (
    CastTo,
    FlinkCall,
    FlinkColumn,
    FlinkConstant,
    FlinkMember,
    Shared,
)
from dataflow_assets.languages.sql.engine.plan import Cell, FlinkOutput, FlinkPlan
from dataflow_assets.languages.sql.engine.ranking import FlinkOrder, Ranking
from dataflow_assets.languages.sql.engine.stages import FlinkStage
from dataflow_assets.languages.sql.engine.types import FlinkType
from dataflow_assets.languages.sql.engine.united import TableRows
from dataflow_assets.languages.sql.engine.unnest import Unnest
from dataflow_assets.languages.sql.engine.view import ViewPlan
from dataflow_assets.languages.sql.engine.windows import Closing, FlinkWindows

_LAYOUT = (
    "kind names types nullable times ignore_errors fail_on_missing ignore_nulls plain_decimals "
    "delimiter quote escape array_delimiter null_literal comments named subject charset endianness"
)
_STAGE = "keys calls where retracts shared window"
PLANS = Forms(
    Form(Aggregate, "aggregate", "name type argument distinct condition"),
    Form(FlinkCall, "call", "type name arguments"),
    Form(CastTo, "cast_to", "type given tries"),
    Form(Cell, "cell", "name place at key_at metadata type"),
    Form(ChangeLayout, "change_layout", f"{_LAYOUT} envelope primary database table"),
    Form(Closing, "closing", "at local"),
    Form(FlinkColumn, "column", "type at", ignored=frozenset({"name"})),
    Form(FlinkConstant, "constant", "type value"),
    Form(FlinkLayout, "layout", _LAYOUT),
    Form(FlinkMember, "member", "type given at"),
    Form(FlinkOrder, "order", "at descending nulls_first"),
    Form(FlinkOutput, "output", "name expression nullable key metadata"),
    Form(
        FlinkPlan,
        "plan",
        "value key cells outputs where key_where shared changelog times drops_nulls zone unnests",
    ),
    Form(Ranking, "ranking", f"{_STAGE} order most"),
    Form(Shared, "shared", "type at"),
    Form(FlinkStage, "stage", _STAGE),
    Form(TableRows, "table_rows", "value key cells unnests where selected shared"),
    Form(FlinkType, "type", "kind length scale items names", later={"fixed": False}),
    Form(Unnest, "unnest", "given at outer where shared"),
    Form(
        ViewPlan,
        "view_plan",
        "value key cells stages outputs having primary times drops_nulls zone shared windows idle "
        "expires unnests united",
    ),
    Form(FlinkWindows, "windows", "kind time size step watermark offset"),
)


@dataclass(frozen=True)
class Digests:
    """The two digests of one query."""

    shape: str
    """All that decides what is kept of rows is in it, and no spelling."""
    query: str
    """All that decides which rows the target has is in it."""


def digests(view: ViewPlan, digest: Callable[[object], str] = PLANS.digest) -> Digests:
    """The digests of a query with state, which take a walk through its whole plan.

    Args:
        view: the query.
        digest: of a value; another one is that of a version before.
    """
    read = (view.value, view.key, view.cells, view.primary, view.zone)
    kept = (read, view.stages, *view.unnests, *view.united)
    shape = digest(kept if view.windows is None else (*kept, view.windows))[:16]
    written = (view.outputs, view.having, view.shared, view.times, view.drops_nulls)
    return Digests(shape, digest((shape, written))[:16])


def former_digests(view: ViewPlan) -> Digests:
    """The digests that a version before has stored with a state of the query.

    For one release: its states are found by these, and the next commit writes the digest of this
    version. They were of Python's `repr` of a plan, with names of classes, which tags stand for.
    """
    return digests(view, lambda value: hashlib.sha256(_repr(value).encode()).hexdigest())


def _repr(value: object) -> str:
    form = PLANS.form(value)
    if form is not None:
        name = form.tag.title().replace("_", "")
        attributes = [f"{k}={_repr(getattr(value, a))}" for k, a in form.attributes.items()]
        return f"{name}({', '.join(attributes)})"
    if isinstance(value, tuple):
        inner = [_repr(one) for one in value]
        return f"({', '.join(inner)}{',' if len(inner) == 1 else ''})"
    return repr(value)
