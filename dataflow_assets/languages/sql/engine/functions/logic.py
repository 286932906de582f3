"""AND, OR, NOT, and the tests whether something is null, true or false: three-valued."""

from __future__ import annotations

from typing import Any

from dataflow_assets.languages.sql.engine.function import (
    Environment,
    Evaluate,
    Function,
    Resolve,
    Resolved,
    Row,
)
from dataflow_assets.languages.sql.engine.functions.signatures import fit, takes
from dataflow_assets.languages.sql.engine.types import BOOLEAN, FlinkType


def _decided_by(decisive: bool) -> Resolve:
    def call(*inner: Evaluate) -> Evaluate:
        def evaluate(row: Row) -> bool | None:
            result: bool | None = not decisive
            for one in inner:
                value: bool | None = one(row)
                if value is decisive:
                    return decisive
                if value is None:
                    result = None
            return result

        return evaluate

    def resolve(types: Any, _: Environment) -> Resolved:
        fit(types, ("boolean*",))
        return Resolved(BOOLEAN, call, whole=True)

    return resolve


def _test(families: str, call: Any) -> Resolve:
    return takes(families, FlinkType("BOOLEAN"), call, nulls=True)


FUNCTIONS = (
    Function(
        "AND",
        "a AND b",
        "False where one is false, whatever the other one is.",
        _decided_by(False),
        (
            ("TRUE AND FALSE", "FALSE"),
            ("FALSE AND CAST(NULL AS BOOLEAN)", "FALSE"),
            ("TRUE AND CAST(NULL AS BOOLEAN)", None),
        ),
        "Logic",
    ),
    Function(
        "OR",
        "a OR b",
        "True where one is true, whatever the other one is.",
        _decided_by(True),
        (("TRUE OR CAST(NULL AS BOOLEAN)", "TRUE"), ("FALSE OR CAST(NULL AS BOOLEAN)", None)),
        "Logic",
    ),
    Function(
        "NOT",
        "NOT a",
        "The opposite; of null null.",
        takes("boolean", BOOLEAN, lambda value: not value),
        (("NOT TRUE", "FALSE"), ("NOT CAST(NULL AS BOOLEAN)", None)),
        "Logic",
    ),
    Function(
        "IS NULL",
        "a IS [NOT] NULL",
        "Whether there is no value.",
        _test("any", lambda value: value is None),
        (("CAST(NULL AS INT) IS NULL", "TRUE"), ("1 IS NULL", "FALSE"), ("1 IS NOT NULL", "TRUE")),
        "Logic",
    ),
    Function(
        "IS TRUE",
        "a IS [NOT] TRUE",
        "Never null.",
        _test("boolean", lambda value: value is True),
        (("CAST(NULL AS BOOLEAN) IS TRUE", "FALSE"), ("TRUE IS NOT TRUE", "FALSE")),
        "Logic",
    ),
    Function(
        "IS FALSE",
        "a IS [NOT] FALSE",
        "Never null.",
        _test("boolean", lambda value: value is False),
        (("FALSE IS FALSE", "TRUE"), ("CAST(NULL AS BOOLEAN) IS NOT FALSE", "TRUE")),
        "Logic",
    ),
    Function(
        "IS UNKNOWN",
        "a IS [NOT] UNKNOWN",
        "Whether a boolean is null.",
        _test("boolean", lambda value: value is None),
        (("CAST(NULL AS BOOLEAN) IS UNKNOWN", "TRUE"), ("TRUE IS NOT UNKNOWN", "TRUE")),
        "Logic",
    ),
)
