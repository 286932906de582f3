"""What digests that are stored are made of: no name in the code is part of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Any

import pytest

from dataflow_assets.languages.common.canonical import Form, Forms
from tests import ROOT


@dataclass(frozen=True)
class Pair:
    left: Any
    right: Any = None


@dataclass(frozen=True)
class Renamed:
    first: Any
    second: Any = None


@dataclass(frozen=True)
class Wider(Pair):
    mode: str = "plain"


class Word(StrEnum):
    JSON = "json"


class Number(Enum):
    ONE = 1


FORMS = Forms(Form(Pair, "pair", "left right"))
RENAMED = Forms(Form(Renamed, "pair", "left=first right=second"))
WIDER = Forms(Form(Wider, "pair", "left right", later={"mode": "plain"}))
STORED = "5307b4de5e6c5a004b3a185f6c9883393ac4fcf4bc15a3e7b0510163b10b4cdd"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "tree"),
    [
        (None, None),
        (True, True),
        (1, 1),
        ("é", "é"),
        (1.0, ["float", "1.0"]),
        (-0.0, ["float", "-0.0"]),
        (float("nan"), ["float", "nan"]),
        (float("-inf"), ["float", "-inf"]),
        (Decimal("1.50"), ["decimal", "1.50"]),
        (b"\0a", ["bytes", "0061"]),
        (date(2026, 1, 1), ["date", "2026-01-01"]),
        (time(12, 0, 0, 5), ["time", "12:00:00.000005"]),
        (NOON, ["datetime", "2026-01-01T12:00:00+00:00"]),
        ((), ["list"]),
        ((1, ("a",)), ["list", 1, ["list", "a"]]),
        ([1], ["list", 1]),
        ({"b": 1, "a": 2.0}, ["map", ["a", ["float", "2.0"]], ["b", 1]]),
        (Word.JSON, "json"),
        (Number.ONE, 1),
        (Pair((1,)), ["pair", ["left", ["list", 1]], ["right", None]]),
    ],
)
def test_a_value_is_a_list_with_its_tag(value: object, tree: Any) -> None:
    assert FORMS.tree(value) == tree


def test_digests_stay_as_they_are() -> None:
    value = Pair((1.5, "a", b"b"), {"k": Decimal("1.0")})
    assert FORMS.digest(value) == STORED


def test_values_that_differ_have_digests_that_differ() -> None:
    values = [0, False, 0.0, -0.0, "0", b"0", None, (), ((),), ("list",), {}, Decimal(0), "", b""]
    values += [Decimal("0.0"), Pair(0), Pair(None, 0), ("pair", ("left", 0)), date(2026, 1, 1)]
    assert len({FORMS.digest(one) for one in values}) == len(values)


def test_names_of_the_code_are_no_part_of_a_digest() -> None:
    assert RENAMED.digest(Renamed("x", (1,))) == FORMS.digest(Pair("x", (1,)))


def test_a_field_that_came_later_changes_no_digest_until_it_says_something() -> None:
    assert WIDER.digest(Wider(1, 2)) == FORMS.digest(Pair(1, 2))
    assert WIDER.digest(Wider(1, 2, "other")) != FORMS.digest(Pair(1, 2))


def test_a_class_without_a_form_has_no_digest() -> None:
    with pytest.raises(TypeError, match="Renamed has no form"):
        FORMS.digest((Renamed(1),))


def test_no_digest_is_made_of_what_python_shows_of_an_object() -> None:
    """Names of classes and fields would be stored with it."""
    engine = ROOT / "dataflow_assets"
    texts = {file.name: file.read_text() for file in engine.rglob("*.py")}
    made = {name for name, text in texts.items() if "import hashlib" in text and "repr(" in text}
    assert made == {"digests.py", "frame.py"}  # of texts: the group of Spark's consumers
