"""Foreign keys between targets of one flow: what to say of a row that one of them refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dataflow_assets.connectors.postgresql.client import Link
from dataflow_assets.contracts import Rejection, Target

VIOLATED = "23503"
_BETWEEN = """
SELECT c.conname, o.place::regclass::text
FROM pg_constraint c, LATERAL (VALUES
    (c.conrelid, c.confrelid), (c.confrelid, c.conrelid)) AS o (mine, place)
JOIN {h} AS h ON h.target = o.place::text
WHERE c.contype = 'f' AND o.mine = $3::oid AND h.flow = $1 AND h.branch <> $2
"""


def explain(
    link: Link, heads: str, target: Target, oid: str, rejections: Sequence[Rejection]
) -> list[Rejection]:
    """The rejections, with the reason behind those that another target of the flow has caused.

    Called by writers before they settle what was refused; asks the server only where a foreign
    key was violated. `heads`: the table of checkpoints, `oid`: the target's.
    """
    if not any(VIOLATED in one.reason for one in rejections):
        return list(rejections)
    found = link.execute(_BETWEEN.format(h=heads), target.flow, target.branch, oid)
    others = {f"constraint {name}": str(place) for name, place in found}
    return [_explain(one, others) for one in rejections]


def _explain(one: Rejection, others: Mapping[str, str]) -> Rejection:
    place = next((place for words, place in others.items() if f"{words})" in one.reason), None)
    if VIOLATED not in one.reason or place is None:
        return one
    advice = (
        f"; {place} is a target of this flow too: targets commit one after the other, so that a "
        "foreign key between them cannot hold: drop it"
    )
    return replace(one, reason=one.reason + advice)
