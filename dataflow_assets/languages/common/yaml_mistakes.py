"""A mistake in YAML's signs -> where it is, and what a person should do about it.

The parser's own words are for people who write parsers, and they quote the text, which may be
secret.
"""

from __future__ import annotations

import re

from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.reader import ReaderError

_COMMENT = "a `#` behind a space begins a comment: put the value in quotes"
_CUT_OFF = re.compile(r"[^'\"]*[{\[][^'\"]*\S (?=#)")
PLAIN_KEY = re.compile(r"[\w.$/-]{1,80}")
TAG = "a value that begins with `!` must be in quotes; YAML tags are not supported"
_PROBLEMS = (
    (r"expected alphabetic", "a value that begins with `*` or `&` must be in quotes"),
    (r"after the closing quote", "text after the closing quote: use the other quotes inside"),
    (r"^a tag$", TAG),
    (r"^indented: ", "{}: keys of one block start in the same column"),
    (r"\\t", "a tab cannot indent YAML: use spaces"),
    (r"^found a tab", "a tab cannot indent YAML: use spaces"),
    (r"cannot start any token", "a value cannot begin with this character: put it in quotes"),
    (r"mapping values are not allowed", "a `:` does not belong here: mind indentation and quotes"),
    (r"expected <block end>", "the indentation does not fit the lines above"),
    (r"could not find expected ':'", "a key without `: ` after it"),
    (r"end of stream", "a quote or bracket is never closed"),
    (r"expected ',' or", "a bracket is not closed, or a comma is missing"),
    (r"undefined alias", "text that begins with `*` must be in quotes, an alias needs an anchor"),
    (r"escape", "an unknown escape sequence: use single quotes to keep a backslash"),
)


def explain(error: YAMLError, text: str, lines_before: int) -> tuple[int, int, str]:
    """Returns where the parser stopped in this text, and what to do.

    Called by `documents.parse`, once for each document that is not YAML.

    Args:
        error: what the parser raised.
        text: the document.
        lines_before: lines of the file before the document; sentences name lines of the file.

    Returns:
        Line and column in the text, both from 1, and a sentence.
    """
    if isinstance(error, ReaderError):
        before = text[: error.position]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        return line, column, "not valid YAML: a character that it does not allow"
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    if "expected ',' or" in _problem(error) and (comment := _comment(text, line)):
        return *comment, f"not valid YAML: {_COMMENT}"
    problem = _cause(_problem(error), text.splitlines(), line - 1, column - 1, lines_before)
    sentences = (say for pattern, say in _PROBLEMS if re.search(pattern, problem))
    sentence = next(sentences, "cannot be read here").format(problem.removeprefix("indented: "))
    return line, column, f"not valid YAML: {sentence}"


def _comment(text: str, line: int) -> tuple[int, int] | None:
    lines = text.splitlines()
    for at in (line - 1, line - 2):
        match = _CUT_OFF.match(lines[at]) if 0 <= at < len(lines) else None
        if match:
            return at + 1, match.end() + 1
    return None


def _problem(error: YAMLError) -> str:
    if "scanning a tag" in str(getattr(error, "context", "")):
        return "a tag"
    return str(getattr(error, "problem", "")) if isinstance(error, MarkedYAMLError) else ""


def _cause(problem: str, lines: list[str], line: int, column: int, offset: int) -> str:
    """The parser's problem, or what is behind it where the text tells more."""
    text = lines[line] if line < len(lines) else ""
    before = text[:column]
    if "<scalar>" in problem and before.rstrip()[-1:] in {"'", '"'}:
        return "after the closing quote"
    begins = "mapping values" in problem and PLAIN_KEY.fullmatch(before.strip())
    if begins or ("<block mapping start>" in problem and not before.strip()):
        above = next((at for at in range(line - 1, -1, -1) if _indent(lines[at]) is not None), None)
        if above is not None and _indent(lines[above]) != _indent(text):
            own, other = _indent(text), _indent(lines[above])
            return (
                f"indented: line {line + 1 + offset} is indented by {own}, "
                f"line {above + 1 + offset} by {other}"
            )
    return problem


def _indent(line: str) -> int | None:
    """Spaces before the text of a line; None where it has none, or a comment."""
    text = line.lstrip(" ")
    return None if not text.strip() or text.startswith("#") else len(line) - len(text)
