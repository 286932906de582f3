"""The grammar of conditions: read once, when the manifest is, into a small tree.

What the DataFlow Operator would take for a field that no record has, and so drop every record, is
an error with its column here: a forgotten quote or parenthesis, `=` for `==`, blanks inside a path.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from dataflow_assets.records.paths.parts import BRACKETS, Unreadable, closing, unescape
from dataflow_assets.records.paths.path import Path
from dataflow_assets.records.paths.queries import as_number

LONGEST = 65_536  # characters
DEEPEST = 50  # groups and negations inside each other
METADATA = "metadata."

_BLANKS = re.compile(r"\s*")
_SIGN = re.compile(r"(==|!=|=~|<=|>=|<|>)(?=[\s'\"])|(in)(?=[\s\[])")
_NEARLY = re.compile(r"==|!=|=~|<=|>=|<|>|=")
_QUOTED = re.compile(r"""'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)\"""", re.DOTALL)
_WORD = re.compile(r"(?:(?!&&|\|\|)[^\s)])+")
_ITEM = re.compile(r"[^\s,\]'\"]+")
_SIGNS = "== != < <= > >= in =~"
_ELSEWHERE = {
    "and": "`and` is written &&",
    "or": "`or` is written ||",
    "not": "`not` is written !, before the field",
    "in": "`in` is written in lower case, with a list: in [a, b]",
    "like": "`like` is written =~, with a regular expression",
    "is": "for `is null` write !$.path",
    "between": "`between 1 and 5` is written $.path >= 1 && $.path <= 5",
    "contains": "`contains` is written =~, with a regular expression",
    "matches": "`matches` is written =~, with a regular expression",
    "startswith": "`startsWith x` is written =~ '^x'",
    "endswith": "`endsWith x` is written =~ 'x$'",
    "eq": "`eq` is written ==",
    "ne": "`ne` is written !=",
    "exists": "`exists` is written as the path alone",
}
"""Words of other languages, and how they are written here."""
_LETTERS = re.compile(r"[A-Za-z]+(?!\w)")


@dataclass(frozen=True)
class Test:
    """One field of the body (`path`) or one metadata key, and what is asked of it.

    Without a sign: its truth. `values`: one text, or the list of `in`.
    """

    path: Path | None
    key: str
    sign: str = ""
    values: tuple[str, ...] = ()
    bare: bool = False
    """True for a value without quotes."""
    written: str = ""
    """The field as the manifest writes it."""


@dataclass(frozen=True)
class Not:
    """Holds where `inner` does not."""

    inner: Node


@dataclass(frozen=True)
class All:
    """`&&`."""

    terms: tuple[Node, ...]


@dataclass(frozen=True)
class Some:
    """`||`."""

    terms: tuple[Node, ...]


Node: TypeAlias = Test | Not | All | Some


def read(text: str) -> Node:
    """The tree of a condition. Raises ValueError with a column."""
    if not text.strip():
        raise ValueError("is empty; write a condition such as $.status == 'paid'")
    if len(text) > LONGEST:
        raise ValueError(f"is longer than {LONGEST} characters")
    reader = _Reader(text)
    try:
        return reader.whole()
    except Unreadable as error:
        raise ValueError(f"cannot be read at column {error.at + 1}: {error.why}") from None


class _Reader:
    """Reads from left to right, never back."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0

    def whole(self) -> Node:
        node = self._some()
        if self.at < len(self.text):
            self._fail("unmatched `)`; allowed: && ||")
        return node

    def _some(self) -> Node:
        terms = [self._all()]
        while self._take("||"):
            terms.append(self._all())
        return terms[0] if len(terms) == 1 else Some(tuple(terms))

    def _all(self) -> Node:
        terms = [self._operand()]
        while self._take("&&"):
            terms.append(self._operand())
        return terms[0] if len(terms) == 1 else All(tuple(terms))

    def _operand(self) -> Node:
        node = self._unary()
        if not self._sees("&&", "||", ")", ""):
            group = self.text[: self.at].rstrip().endswith(")")
            after = "; a group is not compared" if group else ""
            self._fail(f"text after a condition{after}{self._hint()}; allowed: && || )")
        return node

    def _unary(self) -> Node:
        self.depth += 1
        if self.depth > DEEPEST:
            self._fail(f"more than {DEEPEST} groups inside each other")
        self._skip()
        start = self.at
        if self._take("!"):
            node: Node = Not(self._unary())
        elif self._take("("):
            node = self._some()
            if not self._take(")"):
                self._fail("a ( without its )", start)
        else:
            node = self._test()
        self.depth -= 1
        return node

    def _test(self) -> Test:
        self._skip()
        start = self.at
        path, key = self._field()
        written = self.text[start : self.at]
        self._skip()
        sign = _SIGN.match(self.text, self.at)
        if not sign:
            if nearly := _NEARLY.match(self.text, self.at):
                self._no_sign(nearly[0])
            if not self._sees("&&", "||", ")", ""):
                hint = self._hint(path.text if path else "")
                self._fail(f"no operator{hint}; allowed: {_SIGNS} && || )")
            return Test(path, key, written=written)
        self.at = sign.end()
        self._skip()
        bare = not self._sees("'", '"', "[")
        values = self._list() if sign[2] else (self._value(sign[1]),)
        return Test(path, key, sign[0], values, bare, written)

    def _hint(self, field: str = "") -> str:
        match = _LETTERS.match(self.text, self.at)
        words = [field.lower(), match[0].lower() if match else ""]
        return next((f": {_ELSEWHERE[word]}" for word in words if word in _ELSEWHERE), "")

    def _field(self) -> tuple[Path | None, str]:
        start = self.at
        if self._sees("'", '"', ")", "&&", "||", ""):
            self._fail("a field is missing; allowed: $.path, metadata.key, ( or !")
        self.at = self._end_of_field()
        field = self.text[start : self.at]
        if field.startswith(METADATA) and field != METADATA:
            return None, unescape(field.removeprefix(METADATA))
        if field in {"", "$", "$."}:
            self._fail("a field is missing; allowed: $.path, metadata.key, ( or !", start)
        return Path.parse(field, start + 1), ""

    def _end_of_field(self) -> int:
        """Blanks and signs end it, not those in `#(...)`, in `['...']` or after a backslash."""
        text, at = self.text, self.at
        while at < len(text) and not (text[at].isspace() or text[at] == ")"):
            if text.startswith(("&&", "||"), at) or self._sign_at(at):
                break
            if text[at] in "=<>(" or text.startswith("!=", at):
                self._no_sign(text[at], at)
            bracket = BRACKETS.match(text, at)
            if text.startswith("#(", at):
                at = closing(text, at)[1] + 1
            elif bracket:
                at = bracket.end()
            else:
                at += 2 if text[at] == "\\" else 1
        return min(at, len(text))

    def _sign_at(self, at: int) -> bool:
        """Not `in`, which is a word: keys end with it too."""
        match = _SIGN.match(self.text, at)
        return bool(match and match[1])

    def _no_sign(self, sign: str, at: int | None = None) -> NoReturn:
        where = "in a key it is written \\" + sign[0]
        if sign == "(":
            where = f"conditions have no functions; {where}"
        nearly = _NEARLY.match(self.text, self.at if at is None else at)
        if nearly:
            equal = "equality is written ==" if nearly[0] == "=" else ""
            where = f"{equal or f'put a space after {nearly[0]}'}; {where}"
        self._fail(f"no operator: {where}; allowed: {_SIGNS}", at)

    def _value(self, sign: str) -> str:
        start = self.at
        quoted = self.text.startswith(("'", '"'), start)
        value = self._text(_WORD)
        if not quoted and value.startswith("$."):
            self._fail(
                "fields cannot be compared with each other; quote a text that begins with $", start
            )
        if sign == "=~":
            try:
                re.compile(value)
            except (re.error, OverflowError, RecursionError) as error:
                self._fail(f"no regular expression: {error}", start)
        if sign in {"<", "<=", ">", ">="} and as_number(value) is None:
            self._fail(f"{sign} compares numbers; allowed: a number such as 5 or -0.5", start)
        return value

    def _list(self) -> tuple[str, ...]:
        start = self.at
        if not self._take("["):
            self._fail("a list is missing; allowed: in [a, 'b', 3]")
        values: list[str] = []
        while not values or self._take(","):
            self._skip()
            values.append(self._text(_ITEM))
        if not self._take("]"):
            self._fail("a [ without its ]; separate the values with commas", start)
        return tuple(values)

    def _text(self, word: re.Pattern[str]) -> str:
        """A text in quotes, in which a backslash keeps a quote or a backslash; or a bare word."""
        if quoted := _QUOTED.match(self.text, self.at):
            self.at = quoted.end()
            single, double = quoted.groups()
            return re.sub(r"\\(['\"\\])", r"\1", double if single is None else single)
        if self.text.startswith(("'", '"'), self.at):
            self._fail("a quote that is not closed")
        match = word.match(self.text, self.at)
        if not match:
            self._fail("a value is missing; allowed: 'text', a number, a word")
        self.at = match.end()
        return match[0]

    def _take(self, sign: str) -> bool:
        self._skip()
        is_next = self.text.startswith(sign, self.at)
        self.at += len(sign) * is_next
        return is_next

    def _sees(self, *signs: str) -> bool:
        self._skip()
        end = self.at == len(self.text)
        return any(self.text.startswith(sign, self.at) if sign else end for sign in signs)

    def _skip(self) -> None:
        match = _BLANKS.match(self.text, self.at)
        self.at = match.end() if match else self.at

    def _fail(self, why: str, at: int | None = None) -> NoReturn:
        raise Unreadable(why, self.at if at is None else at)
