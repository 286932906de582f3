"""INSERTs of SQL whose rows change that write into one table, wherever they are written.

Their rows are replaced and deleted by their keys, whoever has written them. Inside one table of a
file the INSERTs have been compared already, when the file was read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from dataflow_assets.contracts import Address
from dataflow_assets.errors import Finding
from dataflow_assets.flow import Flow
from dataflow_assets.languages.common.documents import Document, Path
from dataflow_assets.languages.sql.engine.plan import FlinkPlan
from dataflow_assets.languages.sql.engine.query import SqlQuery, ViewRows
from dataflow_assets.languages.sql.engine.view import ViewPlan
from dataflow_assets.languages.sql.reader.several_inserts import collide, reason

_NAME: Path = ("metadata", "name")
_NAMED = 3


class _PlannedInsert(NamedTuple):
    made: FlinkPlan | ViewPlan
    document: Document


def overwriting(flows: Sequence[tuple[Flow, Document]]) -> Iterator[tuple[Document, Finding]]:
    """A finding in every INSERT whose rows, and those of another one, could have one key.

    Called when manifests are loaded, with the flows of all files.

    Args:
        flows: with the names that connections give them; those of other languages are left out.
    """
    by_target: dict[Address, list[_PlannedInsert]] = {}
    for flow, document in flows:
        if (plan := _plan(flow)) is not None:
            for branch in flow.branches:
                by_target.setdefault(branch.address, []).append(_PlannedInsert(plan, document))
    for address, inserts in by_target.items():
        for one in inserts:
            others = [
                two.document for two in inserts if two is not one and collide(one.made, two.made)
            ]
            if others:
                yield one.document, one.document.finding(_NAME, _message(one.made, address, others))


def _plan(flow: Flow) -> FlinkPlan | ViewPlan | None:
    for one in flow.transformations:
        if isinstance(one.step, ViewRows):
            return one.step.view
        if isinstance(one.step, SqlQuery):
            return one.step.plan
    return None


def _message(plan: FlinkPlan | ViewPlan, address: Address, others: list[Document]) -> str:
    places = (f"{one.file}:{one.places[()].line}" for one in islice(others, _NAMED))
    more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    return f"the INSERT in {', '.join(places)}{more} writes into {address.name} too, {reason(plan)}"
