"""How SingleStore writes names, texts and symbols."""

from __future__ import annotations

import re
from collections.abc import Sequence

from typing_extensions import override

from dataflow_assets.languages.common.tokens import Lexicon, Place, Token, tokens

_SHAPES: Sequence[tuple[str, str]] = (
    ("blank", r"\s+|--(?=\s|$)[^\n]*|#[^\n]*"),
    ("comment", r"/\*.*?\*/"),
    ("text", r"""'(?:[^'\\]|''|\\.)*'|"(?:[^"\\]|""|\\.)*\""""),
    ("quoted", r"`(?:[^`]|``)+`"),
    ("number", r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"),
    ("word", r"[^\W\d]\w*"),
    ("symbol", r"::\$|::%|::|<-|:>|<>|!=|<=|>=|\|\||[-+*/%=<>(),.;\[\]:@{}!&^~?]"),
)
_OPENED = {
    "'": "this text has no closing quote: a quote inside a text is written twice, or as \\'",
    '"': "this text has no closing quote",
    "`": "this name has no closing backtick",
    "/": "this comment has no end: */ is missing",
}
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
_DELIMITER = re.compile(r"^[ \t]*DELIMITER[ \t]+(\S+)[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)


class _SingleStore(Lexicon):
    """Texts in either quotes, with backslashes."""

    @override
    def token(self, name: str, said: str, place: Place) -> Token:
        if name != "text":
            return super().token(name, said, place)
        quote = said[0]
        inner = re.compile(rf"\\(.)|{quote}{quote}", re.DOTALL)

        def plain(found: re.Match[str]) -> str:
            sign = found[1]
            return quote if sign is None else _ESCAPES.get(sign, sign)

        return Token("text", inner.sub(plain, said[1:-1]), place)


SINGLESTORE = _SingleStore(_SHAPES, _OPENED)


def read_tokens(text: str) -> list[Token]:
    """The tokens of a file. Raises Unreadable."""
    return list(tokens(_without_delimiters(text), SINGLESTORE))


def _without_delimiters(text: str) -> str:
    """`DELIMITER //` is for a client that cuts texts at it; every place stays where it is."""
    found = list(_DELIMITER.finditer(text))
    for one, after in zip(found, [*found[1:], None], strict=False):
        begin, end = one.end(), after.start() if after else len(text)
        sign = one[1]
        part = text[begin:end]
        if sign != ";":
            ending = ";" + " " * (len(sign) - 1)
            part = re.sub(rf"{re.escape(sign)}(?=[ \t\r]*$)", ending, part, flags=re.MULTILINE)
        text = f"{text[: one.start()]}{' ' * (one.end() - one.start())}{part}{text[end:]}"
    return text
