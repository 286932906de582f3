"""Arrays, maps and rows. Arrays begin at 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dataflow_assets.languages.sql.engine.casts import cast
from dataflow_assets.languages.sql.engine.function import Environment, Function, Resolved
from dataflow_assets.languages.sql.engine.functions.comparisons import EQUAL
from dataflow_assets.languages.sql.engine.functions.signatures import fit, takes
from dataflow_assets.languages.sql.engine.types import BOOLEAN, INT, FlinkType, common


def _array(types: Sequence[FlinkType], environment: Environment) -> Resolved:
    fit(types, ("any", "any*"))
    wanted, build = _alike(types, "the items of an array", environment)
    return Resolved(FlinkType("ARRAY", items=(wanted,)), lambda *values: build(values), nulls=True)


def _alike(
    types: Sequence[FlinkType], what: str, environment: Environment
) -> tuple[FlinkType, Callable[[Sequence[Any]], list[Any]]]:
    """The common type, and what gives it to values. Raises ValueError."""
    kind = common(types)
    if kind is None:
        raise ValueError(f"{what} must have a common type")
    casts = [None if one == kind else cast(one, kind, environment.local) for one in types]

    def build(values: Sequence[Any]) -> list[Any]:
        pairs = zip(casts, values, strict=True)
        return [one if change is None or one is None else change(one) for change, one in pairs]

    return kind, build


def _map(types: Sequence[FlinkType], environment: Environment) -> Resolved:
    if not types or len(types) % 2:
        raise ValueError("takes a key and a value, and more of them")
    key, keys = _alike(types[::2], "the keys of a map", environment)
    value, items = _alike(types[1::2], "the values of a map", environment)

    def call(*values: Any) -> dict[Any, Any]:
        return dict(zip(keys(values[::2]), items(values[1::2]), strict=True))

    return Resolved(FlinkType("MAP", items=(key, value)), call, nulls=True)


def _row(types: Sequence[FlinkType], _: Environment) -> Resolved:
    fit(types, ("any", "any*"))
    names = tuple(f"EXPR${index}" for index in range(len(types)))
    kind = FlinkType("ROW", items=tuple(types), names=names)
    return Resolved(kind, lambda *values: list(values), nulls=True)


def _item(types: Sequence[FlinkType], environment: Environment) -> Resolved:
    fit(types, ("array|map", "any"))
    if types[0].kind == "ARRAY":
        fit(types, ("array", "integer"))
        return Resolved(types[0].items[0], _at)
    key, value = types[0].items
    change = None if types[1] == key else cast(types[1], key, environment.local)
    return Resolved(value, lambda one, name: one.get(change(name) if change else name))


def _at(array: list[Any], index: int) -> Any:
    return array[index - 1] if 1 <= index <= len(array) else None


def _element(types: Sequence[FlinkType], _: Environment) -> Resolved:
    fit(types, ("array",))

    def call(array: list[Any]) -> Any:
        if len(array) > 1:
            raise ValueError("ELEMENT: the array has more than one item")
        return array[0] if array else None

    return Resolved(types[0].items[0], call)


def _contains(types: Sequence[FlinkType], environment: Environment) -> Resolved:
    """Null is looked for as any value is."""
    fit(types, ("array", "any"))
    equal = EQUAL((types[0].items[0], types[1]), environment).call

    def call(array: list[Any] | None, wanted: Any) -> bool | None:
        if array is None:
            return None
        if wanted is None:
            return None in array
        return any(one is not None and equal(one, wanted) for one in array)

    return Resolved(BOOLEAN, call, nulls=True)


_GROUP = "Arrays, maps and rows"
FUNCTIONS = (
    Function("ARRAY", "ARRAY[a, ...]", "", _array, (("ARRAY[1, 2]", "[1, 2]"),), _GROUP),
    Function(
        "MAP",
        "MAP[key, value, ...]",
        "",
        _map,
        (("MAP['a', 1]", "{a=1}"), ("MAP['a', 1, 'b', 2.5]", "{a=1.0, b=2.5}")),
        _GROUP,
    ),
    Function("ROW", "ROW(a, ...)", "", _row, (("ROW(1, 'x')", "(1, x)"),), _GROUP),
    Function(
        "ITEM",
        "array[index], map[key]",
        "Arrays begin at 1; null where there is none.",
        _item,
        (("ARRAY[7, 8][1]", "7"), ("ARRAY[7, 8][3]", None), ("MAP['a', 1]['a']", "1")),
        _GROUP,
    ),
    Function(
        "CARDINALITY",
        "CARDINALITY(a)",
        "Items of an array or map.",
        takes("array|map", INT, len),
        (("CARDINALITY(ARRAY[1, 2])", "2"),),
        _GROUP,
    ),
    Function(
        "ELEMENT",
        "ELEMENT(array)",
        "Its only item.",
        _element,
        (("ELEMENT(ARRAY[5])", "5"),),
        _GROUP,
    ),
    Function(
        "ARRAY_CONTAINS",
        "ARRAY_CONTAINS(array, a)",
        "",
        _contains,
        (
            ("ARRAY_CONTAINS(ARRAY[1, 2], 2)", "TRUE"),
            ("ARRAY_CONTAINS(ARRAY[1, NULL], NULL)", "TRUE"),
        ),
        _GROUP,
    ),
)
