"""Expressions and bytes as Flink 2.2 has them, each an answer of its own that is stored here."""

from __future__ import annotations

import pytest

from dataflow_assets.sql.function import Environment
from tests.sql.flink_answers import IN_BERLIN, IN_UTC
from tests.sql.test_functions import NOW, result


@pytest.mark.parametrize(("text", "answer"), IN_UTC)
def test_an_expression(text: str, answer: str | None) -> None:
    assert result(text) == answer


@pytest.mark.parametrize(("text", "answer"), IN_BERLIN)
def test_an_expression_in_a_zone(text: str, answer: str | None) -> None:
    assert result(text, Environment("Europe/Berlin", NOW.now)) == answer
