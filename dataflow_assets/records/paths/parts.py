"""The parts of a path: gjson's syntax, and `[0]`, `[*]`, `['key']` besides.

Read once, when the manifest is. What gjson would take for a key that no body has (an empty key, a
list of paths, a modifier that does not exist here) is an error with its place instead.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from dataflow_assets.records.paths.modifiers import KNOWN, SUPPORTED
from dataflow_assets.records.paths.queries import LOOSE

LONGEST = 100  # parts of one path
DEEPEST = 10  # queries inside queries
APPEND = -1

_KEY = re.compile(r"(?:[^.|\[\\]|\\.)+", re.DOTALL)
_MODIFIER = re.compile(r'@(\w+)(?=[.|:\[]|\Z)(:\{"deep": ?true\}(?=[.|\[]|\Z))?')
BRACKETS = re.compile(
    r"""\[(?:([0-9]+)|(\*)|'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)")\]""", re.DOTALL
)
_TOKEN = re.compile(r"""\\.|"(?:[^"\\]|\\.)*"|(?<=[=<>% ])'(?:[^'\\]|\\.)*'|.""", re.DOTALL)
_SIGN = re.compile(r"(==|!=|!%|<=|>=|=|<|>|%)\s*(.*)", re.DOTALL)
_IN_BRACKETS = "[0], [*], ['key']"


class Unreadable(ValueError):
    """A mistake in a path, and how many characters before it are right."""

    def __init__(self, why: str, at: int) -> None:
        self.why = why
        self.at = at
        super().__init__(why)


@dataclass(frozen=True)
class Key:
    """A key of an object; with an index also an element of an array (APPEND: one past its end)."""

    text: str
    index: int | None = None


@dataclass(frozen=True)
class Glob:
    """The first key that fits a pattern, and has what follows."""

    text: str


@dataclass(frozen=True)
class Each:
    """`#`: what follows of every element, or their number; `[*]`: the elements themselves."""

    text: str


@dataclass(frozen=True)
class Query:
    """`#(...)`: the first element that fits; `#(...)#`: all of them."""

    text: str
    path: tuple[Part, ...]
    sign: str
    literal: str
    every: bool


@dataclass(frozen=True)
class Modifier:
    """`@name`."""

    text: str
    name: str
    deep: bool


@dataclass(frozen=True)
class Pipe:
    """`|`: what follows looks at the whole of what came before, no longer at every element."""

    text: str = "|"


Part: TypeAlias = Key | Glob | Each | Query | Modifier | Pipe


def read(text: str, depth: int = 0) -> tuple[Part, ...]:
    """All parts of a path without its `$`. Raises Unreadable."""
    if depth > DEEPEST:
        raise Unreadable(f"more than {DEEPEST} queries inside each other", 0)
    parts: list[Part] = []
    at = 0
    while True:
        part, at = _part(text, at, depth)
        parts.append(part)
        while text.startswith("[", at):
            part, at = _brackets(text, at)
            parts.append(part)
        if len(parts) > LONGEST:
            raise Unreadable(f"more than {LONGEST} parts", at)
        if at == len(text):
            return tuple(parts)
        if text[at] == "|":
            parts.append(Pipe())
        at += 1


def _part(text: str, at: int, depth: int) -> tuple[Part, int]:
    if at == len(text) or text[at] in ".|":
        if text[at : at + 1] == ".":
            raise Unreadable("`..`, for any depth, is not supported: write the whole path", at)
        raise Unreadable("an empty key; one that is really empty is written ['']", at)
    if text[at] in "{!":
        raise Unreadable(f"{text[at]} builds new JSON, which is not supported; allowed: a path", at)
    if text[at] == "[":
        return _brackets(text, at)
    if text.startswith("#[", at):
        raise Unreadable("a query is written #(...)", at)
    if text.startswith("#(", at):
        return _query(text, at, depth)
    modifier = _MODIFIER.match(text, at)
    if modifier and modifier[1] in KNOWN:
        return _modifier(modifier)
    return _key(text, at)


def _key(text: str, at: int) -> tuple[Part, int]:
    match = _KEY.match(text, at)
    if not match:
        raise Unreadable("a \\ with nothing after it", at)
    raw, end = match[0], match.end()
    if text.startswith("\\", end):
        raise Unreadable("a \\ with nothing after it", end)
    if raw == "#":
        return Each(raw), end
    if re.search(r"[*?]", re.sub(r"\\.", "", raw, flags=re.DOTALL)):
        return Glob(raw), end
    if re.fullmatch(r":(?:[0-9]+|-1)", raw):
        return Key(raw[1:]), end
    return Key(unescape(raw), _index(raw)), end


def _index(raw: str) -> int | None:
    if raw == "-1":
        return APPEND
    if not re.fullmatch(r"[0-9]+", raw):
        return None
    return int(raw) if len(raw) < len(str(sys.maxsize)) else sys.maxsize


def unescape(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)


def _brackets(text: str, at: int) -> tuple[Part, int]:
    match = BRACKETS.match(text, at)
    if not match:
        why = f"[ is written \\[ in a key; allowed in brackets: {_IN_BRACKETS}"
        raise Unreadable(why, at)
    if text[match.end() : match.end() + 1] not in {"", ".", "|", "["}:
        raise Unreadable("text after ]; allowed: . | [", match.end())
    number, star, single, double = match.groups()
    if number:
        return Key(number, _index(number)), match.end()
    if star:
        return Each(match[0]), match.end()
    return Key(unescape(double if single is None else single)), match.end()


def _modifier(match: re.Match[str]) -> tuple[Part, int]:
    name, deep = match.groups()
    if name not in SUPPORTED:
        allowed = ", ".join(f"@{other}" for other in SUPPORTED)
        raise Unreadable(f"not supported: @{name}; allowed: {allowed}", match.start())
    if (deep and name != "flatten") or match.string.startswith(":", match.end()):
        why = 'an argument that is not supported; allowed: @flatten:{"deep":true}'
        raise Unreadable(why, match.end())
    return Modifier(match[0], name, bool(deep)), match.end()


def closing(text: str, at: int) -> tuple[int, int]:
    """Returns where the operator of a query stands (0: it has none) and its `)`; `at`: its `#`."""
    depth = sign = 0
    for token in _TOKEN.finditer(text, at + 1):
        here = token[0]
        if here in "([":
            depth += 1
        elif here in ")]":
            depth -= 1
            if not depth:
                return sign, token.start()
        elif here == '"':
            raise Unreadable('a " that is not closed', token.start())
        elif not sign and depth == 1 and here in "!=<>%":
            sign = token.start()
    raise Unreadable("a query without its )", at)


def _query(text: str, at: int, depth: int) -> tuple[Part, int]:
    sign, close = closing(text, at)
    every = text.startswith("#", close + 1)
    end = close + 1 + every
    if text[end : end + 1] not in {"", ".", "|", "["}:
        raise Unreadable("text after a query; allowed: . | [", end)
    operator, literal = _comparison(text, sign, close) if sign else ("", "")
    before = text[at + 2 : sign or close]
    path = before.strip()
    if not path and not sign:
        raise Unreadable("an empty query", at)
    try:
        parts = read(path, depth + 1) if path else ()
    except Unreadable as error:
        blanks = len(before) - len(before.lstrip())
        raise Unreadable(error.why, at + 2 + blanks + error.at) from None
    return Query(text[at:end], parts, operator, literal, every), end


def _comparison(text: str, sign: int, close: int) -> tuple[str, str]:
    match = _SIGN.fullmatch(text[sign:close].strip())
    if not match:
        raise Unreadable("no operator; allowed: == != < <= > >= % !%", sign)
    operator, literal = match.groups()
    if literal.startswith("~") and (literal not in LOOSE or operator not in {"=", "==", "!="}):
        raise Unreadable(f"after == and != alone, one of: {', '.join(LOOSE)}", sign)
    return operator.replace("==", "="), _plain(literal)


def _plain(literal: str) -> str:
    """The text of a literal in quotes, with JSON's escapes; any other one as it stands."""
    if len(literal) < 2 or literal[0] not in "'\"" or literal[-1] != literal[0]:
        return literal
    try:
        return str(msgspec.json.decode(literal, type=str))
    except msgspec.MsgspecError:
        return unescape(literal[1:-1])
