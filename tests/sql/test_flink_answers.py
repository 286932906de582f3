"""Expressions and bytes as Flink 2.2 has them, each an answer of its own that is stored here."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from dataflow_assets.records.record import exact_json, parse
from dataflow_assets.sql.bytes.layout import Spelling
from dataflow_assets.sql.bytes.write import encoder, writer
from dataflow_assets.sql.function import Environment
from dataflow_assets.sql.types import Type
from tests.sql.flink_answers import IN_BERLIN, IN_UTC, NUMBERS, WRITTEN
from tests.sql.test_bytes import layout
from tests.sql.test_functions import NOW, result


@pytest.mark.parametrize(("text", "answer"), IN_UTC)
def test_an_expression(text: str, answer: str | None) -> None:
    assert result(text) == answer


@pytest.mark.parametrize(("text", "answer"), IN_BERLIN)
def test_an_expression_in_a_zone(text: str, answer: str | None) -> None:
    assert result(text, Environment("Europe/Berlin", NOW.now)) == answer


def written(
    kind: str, of: Type, value: object, spelling: Spelling = "Flink's", **given: Any
) -> str:
    """What a query has computed, on its way through the one pass into a topic."""
    write = writer(of, "SQL")
    body = parse(exact_json({"c0": write(value) if write is not None else value}))
    found = encoder(layout(kind, of, **given), spelling=spelling)(body)
    assert found is not None
    return found.decode()


@pytest.mark.parametrize(("kind", "value", "answer"), NUMBERS)
def test_a_number_in_json_and_csv(kind: Type, value: object, answer: str) -> None:
    assert written("json", kind, value) == f'{{"c0":{answer}}}'
    assert written("csv", kind, value) == answer


@pytest.mark.parametrize(("kind", "value", "options", "answer"), WRITTEN)
def test_a_value_in_json(kind: Type, value: object, options: Any, answer: str) -> None:
    assert written("json", kind, value, **options) == f'{{"c0":{answer}}}'


@pytest.mark.parametrize(
    ("kind", "of", "value", "text"),
    [
        ("json", Type("DECIMAL", 20, 2), "1.50", '{"c0":1.50}'),
        ("json", Type("DOUBLE"), 1e16, '{"c0":1E+16}'),
        ("json", Type("VARCHAR", 9), "\U0001f600", '{"c0":"\U0001f600"}'),
        ("csv", Type("DECIMAL", 20, 2), "1.50", "1.50"),
    ],
)
def test_keys_of_earlier_versions_are_still_written(
    kind: str, of: Type, value: Any, text: str
) -> None:
    given = Decimal(value) if of.kind == "DECIMAL" else value
    assert written(kind, of, given, "before") == text
