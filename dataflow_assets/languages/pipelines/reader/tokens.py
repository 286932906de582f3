"""The tokens of a file of pipelines."""

from __future__ import annotations

import re

from dataflow_assets.languages.common.tokens import SINGLESTORE, Token, tokens

_DELIMITER = re.compile(r"^[ \t]*DELIMITER[ \t]+(\S+)[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)


def read_tokens(text: str) -> list[Token]:
    """The tokens of a file. Raises Unreadable."""
    return list(tokens(_without_delimiters(text), SINGLESTORE))


def _without_delimiters(text: str) -> str:
    """`DELIMITER //` is for a client that cuts texts at it; every place stays where it is."""
    delimiters = list(_DELIMITER.finditer(text))
    for one, after in zip(delimiters, [*delimiters[1:], None], strict=False):
        begin, end = one.end(), after.start() if after else len(text)
        sign = one[1]
        part = text[begin:end]
        if sign != ";":
            ending = ";" + " " * (len(sign) - 1)
            part = re.sub(rf"{re.escape(sign)}(?=[ \t\r]*$)", ending, part, flags=re.MULTILINE)
        text = f"{text[: one.start()]}{' ' * (one.end() - one.start())}{part}{text[end:]}"
    return text
