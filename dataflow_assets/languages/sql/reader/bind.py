"""Names and types of expressions: what Flink's validator does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from dataflow_assets.errors.likely_names import did_you_mean_or
from dataflow_assets.languages.common.keys import suggest
from dataflow_assets.languages.common.tokens import Unreadable
from dataflow_assets.languages.sql.engine.aggregates import AGGREGATES
from dataflow_assets.languages.sql.engine.expressions import (
    Expression,
    FlinkConstant,
    FlinkMember,
    call,
    cast_to,
)
from dataflow_assets.languages.sql.engine.function import Environment
from dataflow_assets.languages.sql.engine.functions import FUNCTIONS, json, patterns, regular
from dataflow_assets.languages.sql.engine.types import INT, STRING, FlinkType, decimal
from dataflow_assets.languages.sql.reader.refusals import is_refused, refusal
from dataflow_assets.languages.sql.reader.syntax import (
    Casting,
    FlinkName,
    FlinkNumbered,
    Invoked,
    Literal,
    Node,
    Star,
)

ALIASES: Mapping[str, str] = {
    "CONCAT": "||",
    "MOD": "%",
    "CEILING": "CEIL",
    "CHARACTER_LENGTH": "CHAR_LENGTH",
    "LENGTH": "CHAR_LENGTH",
    "SUBSTR": "SUBSTRING",
    "NOW": "CURRENT_TIMESTAMP",
    "CURRENT_ROW_TIMESTAMP": "CURRENT_TIMESTAMP",
    "PROCTIME": "CURRENT_TIMESTAMP",
}
"""Functions that have several names."""
PARTS: Mapping[str, str] = {
    "YEAR": "YEAR",
    "QUARTER": "QUARTER",
    "MONTH": "MONTH",
    "WEEK": "WEEK",
    "DAYOFMONTH": "DAY",
    "DAYOFYEAR": "DOY",
    "DAYOFWEEK": "DOW",
    "HOUR": "HOUR",
    "MINUTE": "MINUTE",
    "SECOND": "SECOND",
}
"""Functions that are EXTRACT with a unit."""
_ELSEWHERE: Mapping[str, str] = {
    "NVL": "COALESCE(a, b)",
    "ISNULL": "COALESCE(a, b), or a IS NULL",
    "LEN": "CHAR_LENGTH(a)",
    "UCASE": "UPPER(a)",
    "LCASE": "LOWER(a)",
    "GETDATE": "CURRENT_TIMESTAMP",
    "SYSDATE": "CURRENT_TIMESTAMP",
    "DATEADD": "TIMESTAMPADD(DAY, 1, a)",
    "DATE_ADD": "TIMESTAMPADD(DAY, 1, a)",
    "DATEDIFF": "TIMESTAMPDIFF(DAY, a, b)",
    "DATE_DIFF": "TIMESTAMPDIFF(DAY, a, b)",
    "DATE_TRUNC": "FLOOR(a TO DAY)",
    "DATE_PART": "EXTRACT(DAY FROM a)",
    "TO_CHAR": "DATE_FORMAT(a, 'yyyy-MM-dd')",
    "TO_NUMBER": "CAST(a AS DECIMAL(12, 2))",
    "TO_VARCHAR": "CAST(a AS STRING)",
    "STR": "CAST(a AS STRING)",
    "CONVERT": "CAST(a AS type)",
    "SAFE_CAST": "TRY_CAST(a AS type)",
    "IIF": "IF(condition, a, b)",
    "DECODE": "CASE a WHEN 1 THEN 'x' ELSE 'y' END",
    "JSON_EXTRACT": "JSON_VALUE(a, '$.key')",
    "GET_JSON_OBJECT": "JSON_VALUE(a, '$.key')",
    "JSON_ARRAY": "ARRAY[a, b], which is a JSON array",
    "DATE_SUB": "TIMESTAMPADD(DAY, -1, a)",
    "SUBSTRING_INDEX": "SPLIT_INDEX(a, separator, 0)",
    "SPLIT": "SPLIT_INDEX(a, separator, 0)",
    "STARTSWITH": "a LIKE 'begin%'",
    "ENDSWITH": "a LIKE '%end'",
    "BTRIM": "TRIM(a)",
    "JSON_EXTRACT_STRING": "JSON_VALUE(a, '$.key')",
}
"""Functions of other databases, and what is written here."""
_BARE: Mapping[str, str] = dict.fromkeys(
    ("CURRENT_TIME", "LOCALTIME"), "CAST(LOCALTIMESTAMP AS TIME)"
)
"""Functions of Flink's that have no parentheses, and what is written here."""
_CHECKS: Mapping[str, tuple[int, Callable[[str], Any]]] = {
    "DATE_FORMAT": (1, patterns.check),
    "TO_TIMESTAMP": (1, patterns.check),
    "TO_TIMESTAMP_LTZ": (1, patterns.check),
    "TO_DATE": (1, patterns.check),
    "FROM_UNIXTIME": (1, patterns.check),
    "UNIX_TIMESTAMP": (1, patterns.check),
    "JSON_VALUE": (1, json.parse_path),
    "JSON_QUERY": (1, json.parse_path),
    "JSON_EXISTS": (1, json.parse_path),
    "REGEXP": (1, regular.expression),
    "REGEXP_EXTRACT": (1, regular.expression),
    "REGEXP_REPLACE": (1, regular.expression),
}
"""Arguments that are looked at when the file is loaded, where they are written out."""


Named = Sequence[tuple[str, Expression]]
"""Columns by their names."""


@dataclass(frozen=True)
class Scope:
    """Resolves the names of one query."""

    columns: Named
    tables: Sequence[tuple[str, Named]] = ()
    """Those of FROM by their names, which may be written in front of their columns; without a name
    an empty one."""
    environment: Environment = Environment()

    def names(self) -> list[str]:
        return [name for name, _ in self.columns]

    def find(self, name: str) -> Expression | None:
        return _among(self.columns, name)

    def of_table(self, name: str) -> Named | None:
        """The columns of a table; None where FROM has none of the name."""
        return next((columns for found, columns in self.tables if found == name), None)

    def owners(self, name: str) -> list[str]:
        return [one for one, columns in self.tables if _among(columns, name) is not None]

    def whole(self, node: Node) -> Expression | None:  # noqa: ARG002 - what overrides need
        """Returns what a part is as a whole; None where it is what its own parts make of it."""
        return None


def _among(columns: Named, name: str) -> Expression | None:
    return next((one for found, one in columns if found == name), None)


def bound(node: Node, scope: Scope) -> Expression:
    """The expression with types. Raises Unreadable at the part that is wrong."""
    whole = scope.whole(node)
    if whole is not None:
        return whole
    if isinstance(node, Literal):
        return FlinkConstant(node.type, node.value)
    if isinstance(node, FlinkName):
        return _bind_name(node, scope)
    if isinstance(node, Star):
        _fail(node, "* is not a value: it stands alone in a SELECT, or in COUNT(*)")
    if isinstance(node, FlinkNumbered):
        _fail(node, "ROW_NUMBER() is a column of its own: compute with it in a SELECT around it")
    if isinstance(node, Casting):
        return _cast(node, scope)
    return _bind_call(node, scope)


def _fail(node: Node, message: str) -> NoReturn:
    raise Unreadable(node.place, message)


def _bind_name(node: FlinkName, scope: Scope) -> Expression:
    parts = list(node.parts)
    expression = _of_table(scope, parts)
    if expression is None:
        _check_owner(node, scope.owners(parts[0]), parts[0])
        expression = scope.find(parts[0])
    if expression is None and parts[0].upper() in _BARE:
        _fail(node, f"{parts[0]} is not supported; write {_BARE[parts[0].upper()]}")
    if expression is None:
        _fail(node, f"no column {parts[0]}; {suggest(parts[-1], scope.names())}")
    for name in parts[1:]:
        expression = _member(node, expression, name)
    return expression


def _check_owner(node: FlinkName, owners: Sequence[str], name: str) -> None:
    if len(owners) > 1:
        names = " or ".join(f"{one or 'name'}.{name}" for one in owners)
        advice = "" if all(owners) else ", and give each table a name by AS"
        _fail(node, f"several tables of FROM have a column {name}: write {names}{advice}")


def _of_table(scope: Scope, parts: list[str]) -> Expression | None:
    """A column behind the name of its table, which is taken off; None for anything else."""
    columns = scope.of_table(parts[0]) if len(parts) > 1 else None
    column = None if columns is None else _among(columns, parts[1])
    if column is not None:
        parts.pop(0)
    return column


def _member(node: Node, given: Expression, name: str) -> Expression:
    if given.type.kind != "ROW":
        advice = f": an item of a map is written map['{name}']" if given.type.kind == "MAP" else ""
        _fail(node, f"{given.type} has no fields, and so no {name}{advice}")
    if name not in given.type.names:
        _fail(node, f"no field {name}; {suggest(name, given.type.names)}")
    at = given.type.names.index(name)
    return FlinkMember(given.type.items[at], given, at)


def _cast(node: Casting, scope: Scope) -> Expression:
    inner = bound(node.given, scope)
    try:
        return cast_to(inner, node.type, tries=node.tries)
    except ValueError as error:
        _fail(node, str(error))


def _bind_call(node: Invoked, scope: Scope) -> Expression:
    if node.name == "FIELD":
        inner, field = node.arguments
        assert isinstance(field, Literal)  # noqa: S101 - so it is read
        return _member(node, bound(inner, scope), str(field.value))
    if node.name in AGGREGATES:
        _fail_unknown(node)
    name = ALIASES.get(node.name, node.name)
    if name not in FUNCTIONS and name not in PARTS:
        _fail_unknown(node)
    arguments = [bound(one, scope) for one in node.arguments]
    if name in PARTS:
        arguments = [FlinkConstant(STRING, PARTS[name]), *arguments]
        name = "EXTRACT"
    if node.distinct or node.condition is not None:
        _fail(node, f"{node.name} is not an aggregate: it takes neither DISTINCT nor FILTER")
    try:
        _check(name, arguments)
        if name == "TIMESTAMPADD":
            arguments = _of_days(arguments)
        if name == "LIKE" and len(arguments) == 2 and not isinstance(arguments[1], FlinkConstant):
            arguments.append(FlinkConstant(STRING, "\\"))
        return _with_digits(name, call(name, arguments, scope.environment), arguments)
    except ValueError as error:
        _fail(node, f"{node.name}: {error}")


def _of_days(arguments: Sequence[Expression]) -> list[Expression]:
    """Hours are added to the midnight of a date."""
    days = list(arguments)
    unit = days[0] if days else None
    smaller = isinstance(unit, FlinkConstant) and unit.value in ("HOUR", "MINUTE", "SECOND")
    if smaller and len(days) == 3 and days[2].type.kind == "DATE":
        days[2] = cast_to(days[2], FlinkType("TIMESTAMP", 0))
    return days


def _with_digits(name: str, expression: Expression, arguments: Sequence[Expression]) -> Expression:
    """The type of a rounded decimal depends on how many digits are written."""
    if name not in ("ROUND", "TRUNCATE") or expression.type.kind != "DECIMAL":
        return expression
    digits = arguments[1] if len(arguments) > 1 else FlinkConstant(INT, 0)
    kind = expression.type
    if not isinstance(digits, FlinkConstant) or not isinstance(digits.value, int):
        return expression
    if digits.value >= kind.scale:
        return expression
    scale = max(digits.value, 0)
    return cast_to(expression, decimal(1 + kind.length - kind.scale + scale, scale))


def _fail_unknown(node: Invoked) -> NoReturn:
    if node.name in AGGREGATES:
        message = (
            "is an aggregate: it is of the items of a SELECT and of HAVING, and holds no other"
        )
        _fail(node, f"{node.name} {message}")
    if is_refused(node.name):
        _fail(node, refusal(node.name))
    called = [name for name, one in FUNCTIONS.items() if one.usage.startswith(f"{name}(")]
    names = [*called, *ALIASES, *PARTS]
    advice = did_you_mean_or(node.name, names, "docs/reference/sql.md lists all functions")
    if node.name in _ELSEWHERE and node.name not in names:
        advice = f"write {_ELSEWHERE[node.name]}"
    _fail(node, f"the function {node.name} is not supported; {advice}")


def _check(name: str, arguments: Sequence[Expression]) -> None:
    at, check = _CHECKS.get(name, (0, str))
    if name in _CHECKS and len(arguments) > at:
        one = arguments[at]
        if isinstance(one, FlinkConstant) and isinstance(one.value, str):
            check(one.value)
