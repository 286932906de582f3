"""Texts that ClickHouse makes other values of: none that is let through becomes NULL or another."""

from __future__ import annotations

import random
import re

import pytest

import devservers
from tests.connectors.clickhouse.driver import Place
from tests.connectors.clickhouse.values import fill, refused


@pytest.fixture
def place(clickhouse: devservers.ClickHouse, database: str) -> Place:
    return Place(clickhouse.dsn(database))


TEXTS = {
    "IPv4": (["1.2.3.4", "255.255.255.255", "10.0.0.1"], "0123456789."),
    "IPv6": (["::1", "2001:db8::ffff:1.2.3.4", "1:2:3:4:5:6:7:8"], "01289abfABCF:.%"),
    "Time": (["-999:59:59", "10:00:00", "00:00:01"], "0123456789:-"),
    "Time64(3)": (["-999:59:59.999", "10:00:00.5", "00:00:00"], "0123456789:.-"),
    "Int128": (["0", str(-(2**127)), str(2**127 - 1)], "0123456789-"),
    "UInt256": (["0", str(2**256 - 1), "1"], "0123456789-"),
    "FixedString(5)": (["abc", "üü"], "aü€"),
    "Enum8('a' = 1, 'bb' = 2)": (["a", "bb"], "ab"),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_no_text_that_is_let_through_becomes_null_or_another_one(place: Place, kind: str) -> None:
    """Sound values with some signs changed, cut or added: what the server is given, it stores."""
    sounds, signs = TEXTS[kind]
    dice = random.Random(5)
    tried = sorted({*sounds, *(_changed(dice, sounds, signs) for _ in range(400))})
    place.make(f"id UInt32, x Nullable({kind}), l Array(Nullable({kind}))")
    fill(place, [{"id": at, "x": one, "l": [one]} for at, one in enumerate(tried)])
    rows = place.run("select id, isNull(x), isNull(l[1]), toString(x) from orders")
    assert [tried[row[0]] for row in rows if row[1] or row[2]] == []
    assert len(rows) + len(refused(place)) == len(tried)
    assert {tried[row[0]] for row in rows} >= set(sounds)
    if not kind.startswith("IP"):
        pairs = [(tried[row[0]], row[3].rstrip("\0")) for row in rows]
        assert [pair for pair in pairs if not _same(*pair)] == []


def _changed(dice: random.Random, sounds: list[str], signs: str) -> str:
    text = list(dice.choice(sounds))
    for _ in range(dice.randrange(1, 3)):
        at = dice.randrange(len(text) + 1)
        text[at : at + dice.randrange(2)] = dice.choices(signs, k=dice.randrange(2))
    return "".join(text)


def _same(given: str, shown: str) -> bool:
    """Equal but for zeros in front of hours and behind a fraction, and a zero's sign."""
    if ":" in given:
        sign, digits = given.startswith("-"), re.split("[:.]", given.removeprefix("-"))
        other = re.split("[:.]", shown.removeprefix("-"))
        digits += ["0"] * (len(other) - len(digits))
        whole = [int(one) for one in digits[:3]] + [one.ljust(3, "0") for one in digits[3:]]
        zero = not any(int(one) for one in other)
        same = whole == [int(one) for one in other[:3]] + other[3:]
        return same and (zero or sign == shown.startswith("-"))
    return given == shown or {given, shown} == {"-0", "0"} or given.lstrip("0") == shown.lstrip("0")
