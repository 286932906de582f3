"""UNNEST: the columns that the items of an array, or of a map, become."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dataflow_assets.languages.common.tokens import Unreadable
from dataflow_assets.languages.sql.engine.expressions import Expression, FlinkColumn
from dataflow_assets.languages.sql.engine.types import FlinkType
from dataflow_assets.languages.sql.engine.unnest import Unnest, item_names
from dataflow_assets.languages.sql.reader.bind import Scope, bound
from dataflow_assets.languages.sql.reader.syntax import FlinkUnnestedJoin

_KINDS = ("ARRAY", "MAP")
NUMBER = "ORDINALITY"


def unnest(node: FlinkUnnestedJoin, scope: Scope, where: Expression | None, width: int) -> Unnest:
    """The join. Raises Unreadable.

    Args:
        node: as it is written.
        scope: of the rows that are joined.
        where: of these rows.
        width: how many columns they have.
    """
    array = bound(node.given, scope)
    if array.type.kind not in _KINDS:
        message = f"UNNEST takes an array or a map, not {array.type}"
        raise Unreadable(node.given.place, message)
    if node.alias is not None and node.alias in (name for name, _ in scope.tables):
        raise Unreadable(node.place, f"{node.alias} is the name of another table of FROM")
    return Unnest(array, width, node.outer, where)


def columns(node: FlinkUnnestedJoin, unnested: Unnest) -> Sequence[tuple[str, Expression]]:
    """The columns of the items by their names. Raises Unreadable."""
    types = unnested.types if node.numbered else unnested.types[:-1]
    names = node.columns or tuple(_names(node, unnested.given.type))
    if len(names) != len(types):
        kinds = ", ".join(map(str, types))
        message = f"UNNEST has {len(types)} columns ({kinds}), and {len(names)} names for them"
        raise Unreadable(node.place, message)
    twice = next((one for at, one in enumerate(names) if one in names[:at]), None)
    if twice is not None:
        raise Unreadable(node.place, f"UNNEST has two columns of the name {twice}")
    pairs = enumerate(zip(names, types, strict=True))
    return [(name, FlinkColumn(kind, unnested.at + at, name)) for at, (name, kind) in pairs]


def _names(node: FlinkUnnestedJoin, kind: FlinkType) -> Iterator[str]:
    names = item_names(kind)
    plain = len(names) == 1 and not kind.items[0].names
    alone = node.alias if node.alias is not None and not node.numbered else "EXPR$0"
    yield from (alone,) if plain else names
    if node.numbered:
        yield NUMBER
