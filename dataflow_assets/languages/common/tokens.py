"""Text -> tokens, each with its place. Comments are left out, hints are kept."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from typing_extensions import override

Kind = Literal["word", "quoted", "text", "number", "symbol", "hint", "end"]

_SHAPES: tuple[tuple[str, str], ...] = (
    ("blank", r"\s+|--[^\n]*"),
    ("hint", r"/\*\+.*?\*/"),
    ("comment", r"/\*.*?\*/"),
    ("unicode", r"[uU]&'(?:[^']|'')*'"),
    ("text", r"'(?:[^']|'')*'"),
    ("quoted", r"`(?:[^`]|``)+`"),
    ("number", r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"),
    ("word", r"[^\W\d]\w*"),
    ("symbol", r"<>|!=|<=|>=|\|\||=>|==|::|[-+*/%=<>(),.;\[\]:]"),
)
_ESCAPE = re.compile(r"\\(?:([0-9a-fA-F]{4})|\+([0-9a-fA-F]{6})|(\\))")
_OPENED = {
    "'": "this text has no closing quote: a quote inside a text is written twice",
    "`": "this name has no closing backtick",
    "/": "this comment has no end: */ is missing",
    '"': "double quotes are not Flink's: a text is written 'like this', a name `like this`",
}


_SINGLESTORE_SHAPES: tuple[tuple[str, str], ...] = (
    ("blank", r"\s+|--(?=\s|$)[^\n]*|#[^\n]*"),
    ("comment", r"/\*.*?\*/"),
    ("text", r"""'(?:[^'\\]|''|\\.)*'|"(?:[^"\\]|""|\\.)*\""""),
    ("quoted", r"`(?:[^`]|``)+`"),
    ("number", r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"),
    ("word", r"[^\W\d]\w*"),
    ("symbol", r"::\$|::%|::|<-|:>|<>|!=|<=|>=|\|\||[-+*/%=<>(),.;\[\]:@{}!&^~?]"),
)
_SINGLESTORE_OPENED = {
    "'": "this text has no closing quote: a quote inside a text is written twice, or as \\'",
    '"': "this text has no closing quote",
    "`": "this name has no closing backtick",
    "/": "this comment has no end: */ is missing",
}
_SINGLESTORE_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}


@dataclass(frozen=True, order=True)
class Place:
    """The line and column at which something begins; both count from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Token:
    """One word, name, text, number or symbol."""

    kind: Kind
    text: str
    """A text or name without its quotes; everything else as it is written."""
    place: Place

    def says(self, *words: str) -> bool:
        """Tests for one of these words or symbols, in any case; a quoted name is none."""
        return self.kind in ("word", "symbol") and self.text.upper() in words

    def __str__(self) -> str:
        """Returns the name for messages. A text or a hint may have a secret in it."""
        names = {"end": "the end of the file", "text": "a text", "hint": "a hint"}
        return names.get(self.kind, self.text)


class Lexicon:
    """The spelling of one language's tokens."""

    def __init__(self, shapes: Sequence[tuple[str, str]], opened: Mapping[str, str]) -> None:
        """Made once for each language.

        `shapes`: patterns by kind, of which the first one that fits counts. `opened`: what to say
        where none does, by the first sign.
        """
        names = (f"(?P<{name}>{shape})" for name, shape in shapes)
        self._pattern, self._opened = re.compile("|".join(names), re.DOTALL), opened

    def match(self, text: str, at: int, place: Place) -> tuple[str, str]:
        """The kind and the text of what is at a place. Raises Unreadable."""
        token = self._pattern.match(text, at)
        if token is None:
            raise Unreadable(place, self._opened.get(text[at], f"{text[at]} is not expected here"))
        spelling = token.group()
        if spelling == "/" and text.startswith("/*", at):
            raise Unreadable(place, self._opened["/"])
        return token.lastgroup or "", spelling

    def token(self, name: str, spelling: str, place: Place) -> Token:
        if name == "text":
            return Token("text", spelling[1:-1].replace("''", "'"), place)
        if name == "unicode":
            return Token("text", _unicode(spelling, place), place)
        if name == "quoted":
            return Token("quoted", spelling[1:-1].replace("``", "`"), place)
        return Token(name, spelling, place)  # type: ignore[arg-type]


class Unreadable(Exception):
    """The text cannot be read on from a place."""

    def __init__(self, place: Place, message: str) -> None:
        self.place, self.message = place, message
        super().__init__(message)


class _SingleStore(Lexicon):
    """Texts in either quotes, with backslashes."""

    @override
    def token(self, name: str, spelling: str, place: Place) -> Token:
        if name != "text":
            return super().token(name, spelling, place)
        quote = spelling[0]
        inner = re.compile(rf"\\(.)|{quote}{quote}", re.DOTALL)

        def plain(match: re.Match[str]) -> str:
            sign = match[1]
            return quote if sign is None else _SINGLESTORE_ESCAPES.get(sign, sign)

        return Token("text", inner.sub(plain, spelling[1:-1]), place)


FLINK = Lexicon(_SHAPES, _OPENED)
SINGLESTORE = _SingleStore(_SINGLESTORE_SHAPES, _SINGLESTORE_OPENED)


def tokens(text: str, lexicon: Lexicon = FLINK) -> Iterator[Token]:
    """The tokens of a text, and one of kind `end`. Raises Unreadable."""
    at, line, begins = 0, 1, 0
    while at < len(text):
        place = Place(line, at - begins + 1)
        name, spelling = lexicon.match(text, at, place)
        if name not in ("blank", "comment"):
            yield lexicon.token(name, spelling, place)
        line += spelling.count("\n")
        at += len(spelling)
        if "\n" in spelling:
            begins = at - len(spelling) + spelling.rindex("\n") + 1
    yield Token("end", "", Place(line, at - begins + 1))


def _unicode(spelling: str, place: Place) -> str:
    """`U&'...'`. Raises Unreadable for a number that is no character."""
    try:
        text = _ESCAPE.sub(_unescape, spelling[3:-1].replace("''", "'"))
        text.encode()
    except (ValueError, OverflowError):
        raise Unreadable(place, "this text names a character that does not exist") from None
    return text


def _unescape(match: re.Match[str]) -> str:
    return "\\" if match[3] else chr(int(match[1] or match[2], 16))
