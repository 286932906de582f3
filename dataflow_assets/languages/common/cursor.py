"""A place in the tokens: what is next, what must be next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NoReturn, TypeVar

from dataflow_assets.languages.common.tokens import Place, Token, Unreadable

Item = TypeVar("Item")
_LONGEST = 10  # digits of a length
_NONE: Mapping[str, str] = MappingProxyType({})

_RESERVED = """
ALL AND ANY ARRAY AS BETWEEN BY CASE CAST CREATE CROSS DISTINCT ELSE END ESCAPE EXCEPT EXISTS FALSE
FETCH FOR FROM FULL GROUP HAVING IN INNER INSERT INTERSECT INTERVAL INTO IS JOIN LEFT LIKE LIMIT MAP
NATURAL NOT NULL OFFSET ON OR ORDER OUTER OVER PARTITION PRIMARY RIGHT ROW SELECT SET SIMILAR TABLE
THEN TO TRUE UNION UNNEST USING VALUES WHEN WHERE WINDOW WITH
"""
RESERVED = frozenset(_RESERVED.split())
"""Words that are no names unless they are in backticks."""


class Cursor:
    """Reads tokens one after the other. Words are compared in any case."""

    def __init__(self, read: Sequence[Token], elsewhere: Mapping[str, str] = _NONE) -> None:
        """At the first of these tokens. `elsewhere`: signs and words that another one is for."""
        self._read, self._at, self._elsewhere = read, 0, elsewhere

    @property
    def next(self) -> Token:
        """The token that was not taken yet."""
        return self._read[self._at]

    @property
    def place(self) -> Place:
        return self.next.place

    def ahead(self, number: int) -> Token:
        """The token behind so many others; the last one beyond the end."""
        return self._read[min(self._at + number, len(self._read) - 1)]

    def take(self) -> Token:
        token = self.next
        self._at = min(self._at + 1, len(self._read) - 1)
        return token

    def sees(self, *words: str) -> bool:
        return all(self.ahead(n).says(word) for n, word in enumerate(words))

    def takes(self, *words: str) -> bool:
        if not self.sees(*words):
            return False
        for _ in words:
            self.take()
        return True

    def expect(self, *words: str) -> Token:
        if not self.next.says(*words):
            self.fail(f"expected {' or '.join(words)}, found {self.next}")
        return self.take()

    def text(self, what: str) -> str:
        """Takes a text in quotes. Raises Unreadable."""
        if self.next.kind != "text":
            self.fail(f"expected {what} in quotes")  # what is there may be a secret without quotes
        return self.take().text

    def name(self, what: str) -> str:
        token = self.next
        if token.kind == "word" and token.text.upper() in RESERVED:
            self.fail(f"expected {what}, found {token}: as a name it needs backticks, `{token}`")
        if token.kind not in ("word", "quoted"):
            self.fail(f"expected {what}, found {token}")
        return self.take().text

    def number(self, what: str) -> int:
        text = self.next.text
        if self.next.kind != "number" or not text.isdecimal() or len(text) > _LONGEST:
            self.fail(f"expected {what}, a whole number, found {self.next}")
        self.take()
        return int(text)

    def items(self, one: Callable[[Cursor], Item]) -> tuple[Item, ...]:
        """Returns at least one, separated by commas."""
        items = [one(self)]
        while self.takes(","):
            items.append(one(self))
        return tuple(items)

    def until(self, end: str, one: Callable[[Cursor], Item]) -> tuple[Item, ...]:
        """Returns what is in front of an end, if anything, separated by commas; takes the end."""
        items = []
        while not self.sees(end):
            items.append(one(self))
            if not self.takes(","):
                break
        self.expect(end)
        return tuple(items)

    def list_of(self, one: Callable[[Cursor], Item]) -> tuple[Item, ...]:
        """Returns what is between parentheses, separated by commas."""
        self.expect("(")
        items = self.items(one)
        self.expect(")")
        return items

    def fail(self, message: str) -> NoReturn:
        """Raises Unreadable at the next token, with what other databases mean by it."""
        token = self.next
        written = token.text.upper() if token.kind in ("word", "symbol") else ""
        advice = self._elsewhere.get(written)
        raise Unreadable(self.place, f"{message}; {advice}" if advice else message)

    def copy(self) -> Cursor:
        """Another one at the same place, to look further ahead."""
        cursor = Cursor(self._read, self._elsewhere)
        cursor._at = self._at
        return cursor

    def move(self, other: Cursor) -> None:
        self._at = other._at

    @property
    def at_end(self) -> bool:
        return self.next.kind == "end" or self.sees(";")

    def expect_end(self) -> None:
        if not self.at_end:
            self.fail(f"expected ; or more of the statement, found {self.next}")

    def skip_statement(self) -> None:
        while self.next.kind != "end" and not self.take().says(";"):
            pass
