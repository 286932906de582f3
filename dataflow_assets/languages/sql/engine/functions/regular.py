"""Regular expressions that end: in time, and with results that fit into memory."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from dataflow_assets.languages.sql.engine.function import Function
from dataflow_assets.languages.sql.engine.functions.signatures import takes
from dataflow_assets.languages.sql.engine.types import BOOLEAN, STRING

if TYPE_CHECKING:
    import regex

SECONDS = 1
"""After which a search is given up."""
LONGEST = 16 * 1024 * 1024
"""Characters of a text that a function makes: larger ones fit into no topic."""


def check_length(length: int) -> None:
    """Raises ValueError before a text is made that is too long."""
    if length > LONGEST:
        raise ValueError(f"the text would have more than {LONGEST} characters")


@lru_cache(maxsize=256)
def expression(text: str) -> regex.Pattern[str]:
    """Raises ValueError for one that cannot be used."""
    import regex

    # As in Java \\d and \\w are ASCII, and \\p is Unicode.
    flags = regex.UNICODE if "\\p" in text.lower() else regex.ASCII
    try:
        return regex.compile(text, flags)
    except (regex.error, OverflowError, RecursionError) as error:
        raise ValueError(f"the regular expression cannot be used: {error}") from None


def matches(text: str, pattern: str) -> bool:
    """Searches a text for a pattern; nothing matches an empty pattern. Raises ValueError."""
    return pattern != "" and _search(text, pattern) is not None


def extract(text: str, pattern: str, group: int = 0) -> str | None:
    """A group of the first match. Raises ValueError."""
    match = _search(text, pattern)
    if match is None or not 0 <= group <= expression(pattern).groups:
        return None
    return match[group]


def _search(text: str, pattern: str) -> regex.Match[str] | None:
    try:
        return expression(pattern).search(text, timeout=SECONDS)
    except TimeoutError:
        raise _endless() from None


def replace_matches(text: str, pattern: str, by: str) -> str:
    """Returns what matches, replaced by a text as it is: without groups. Raises ValueError."""
    length = len(text)

    def make(_: regex.Match[str]) -> str:
        nonlocal length
        length += len(by)
        check_length(length)
        return by

    try:
        return expression(pattern).sub(make, text, timeout=SECONDS)
    except TimeoutError:
        raise _endless() from None


def _endless() -> ValueError:
    return ValueError(f"the regular expression takes more than {SECONDS} seconds")


_REGEX = (
    "Regular expressions are those of Python's package regex, nearly Java's; one that takes more "
    f"than {SECONDS} seconds for a text rejects the record."
)
_GROUP = "Texts"
FUNCTIONS = (
    Function(
        "REGEXP",
        "REGEXP(a, pattern)",
        f"Whether a part of it matches. {_REGEX}",
        takes("text text", BOOLEAN, matches),
        (("REGEXP('abc', 'b+')", "TRUE"), ("REGEXP('abc', '')", "FALSE")),
        _GROUP,
    ),
    Function(
        "REGEXP_EXTRACT",
        "REGEXP_EXTRACT(a, pattern[, group])",
        _REGEX,
        takes("text text integer?", STRING, extract),
        (("REGEXP_EXTRACT('foothebar', 'foo(.*?)(bar)', 2)", "bar"),),
        _GROUP,
    ),
    Function(
        "REGEXP_REPLACE",
        "REGEXP_REPLACE(a, pattern, b)",
        f"b is taken as it is: `$1` in it is no group. {_REGEX}",
        takes("text text text", STRING, replace_matches),
        (
            ("REGEXP_REPLACE('foobar', 'oo|ar', '')", "fb"),
            ("REGEXP_REPLACE('ab', '(a)(b)', '$2$1')", "$2$1"),
        ),
        _GROUP,
    ),
)
