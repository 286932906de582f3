"""Names and functions of expressions: what they mean in the columns of a table or a batch."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import NoReturn

from dataflow_assets.languages.common.keys import suggest
from dataflow_assets.languages.common.tokens import Unreadable
from dataflow_assets.languages.pipelines.reader.syntax import (
    Node,
    PipelineCall,
    PipelineName,
    PipelinePath,
    Value,
)
from dataflow_assets.languages.pipelines.rows.expressions import (
    Expression,
    Extract,
    Form,
    FromBase64,
    PipelineColumnReference,
    PipelineConstant,
)

EXTRACTS: Mapping[str, Form] = {
    "JSON_EXTRACT_STRING": "STRING",
    "JSON_EXTRACT_DOUBLE": "DOUBLE",
    "JSON_EXTRACT_BIGINT": "BIGINT",
    "JSON_EXTRACT_JSON": "JSON",
}
FUNCTIONS = (*EXTRACTS, "FROM_BASE64")
Scope = Mapping[str, PipelineColumnReference]
"""Columns by their names in small letters."""


def bound(node: Node, scope: Scope) -> Expression:
    """The expression. Raises Unreadable at the part that is wrong."""
    if isinstance(node, Value):
        value = Decimal(str(node.value)) if isinstance(node.value, float) else node.value
        return PipelineConstant(value)
    if isinstance(node, PipelineName):
        column = scope.get(node.text.lower())
        if column is None:
            names = [one.name for one in scope.values()]
            advice = suggest(node.text, names)
            _fail(node, f"no column {node.text}; {advice}; a key inside of one is column::key")
        return column
    if isinstance(node, PipelinePath):
        return Extract(node.form, bound(node.given, scope), node.keys)
    return _bind_call(node, scope)


def _bind_call(node: PipelineCall, scope: Scope) -> Expression:
    if node.name == "FROM_BASE64":
        if len(node.arguments) != 1:
            _fail(node, "FROM_BASE64 has one argument")
        return FromBase64(bound(node.arguments[0], scope))
    if node.name not in EXTRACTS:
        _fail(node, f"the function {node.name} is not supported; {suggest(node.name, FUNCTIONS)}")
    if not node.arguments:
        _fail(node, f"{node.name} needs a value, and a path of keys behind it")
    given, *path = node.arguments
    return Extract(EXTRACTS[node.name], bound(given, scope), tuple(_key(one) for one in path))


def _key(node: Node) -> str | int:
    value = node.value if isinstance(node, Value) else None
    if isinstance(value, bool) or not isinstance(value, str | int):
        _fail(node, "a key of a path must be a text, or a place in an array, which begins at 0")
    if isinstance(value, int) and value < 0:
        _fail(node, "places in an array begin at 0")
    return value


def _fail(node: Node, message: str) -> NoReturn:
    raise Unreadable(node.place, message)
