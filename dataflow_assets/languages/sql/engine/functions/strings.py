"""Texts. Places count from 1."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from dataflow_assets.languages.sql.engine.casts import cast
from dataflow_assets.languages.sql.engine.function import Environment, Function, Resolved
from dataflow_assets.languages.sql.engine.functions.regular import check_length
from dataflow_assets.languages.sql.engine.functions.signatures import fit, takes
from dataflow_assets.languages.sql.engine.types import INT, STRING, FlinkType


def _concatenate(types: Sequence[FlinkType], environment: Environment) -> Resolved:
    fit(types, ("any", "any*"))
    return Resolved(STRING, _joiner(types, environment, "".join))


def _joiner(
    types: Sequence[FlinkType], environment: Environment, join: Callable[[list[str]], str]
) -> Callable[..., str]:
    casts = [None if one.text else cast(one, STRING, environment.local) for one in types]
    if not any(casts):
        return lambda *values: join(list(values))

    def call(*values: Any) -> str:
        pairs = zip(casts, values, strict=True)
        return join([one if change is None else change(one) for change, one in pairs])

    return call


def _with_separator(separator: str | None, *parts: str | None) -> str | None:
    """Nulls among the parts are left out."""
    return None if separator is None else separator.join(one for one in parts if one is not None)


def _substring(text: str, start: int, length: int | None = None) -> str | None:
    """From a place that counts from 1, or from the end where it is below zero.

    Nothing is in front of the beginning, however long the part is.
    """
    if length is not None and length < 0:
        return None
    begin = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    if begin < 0:
        return ""
    return text[begin:] if length is None else text[begin : begin + length]


def _position(part: str, text: str, start: int = 1) -> int:
    return text.find(part, max(start - 1, 0)) + 1


def _trimmer(strip: Callable[[str, str], str]) -> Callable[..., str]:
    return lambda text, characters=" ": strip(text, characters)


def _trim(way: str, characters: str, text: str) -> str:
    if way != "TRAILING":
        text = text.lstrip(characters)
    return text if way == "LEADING" else text.rstrip(characters)


def _pad(text: str, length: int, fill: str, *, left: bool) -> str | None:
    if length < 0 or not fill:
        return None
    missing = length - len(text)
    if missing <= 0:
        return text[:length]
    check_length(length)
    filled = (fill * missing)[:missing]
    return filled + text if left else text + filled


def _repeat(text: str, times: int) -> str:
    check_length(len(text) * times)
    return text * max(times, 0)


def _replace(text: str, part: str, by: str) -> str:
    if len(by) > len(part):
        check_length(len(text) + text.count(part) * (len(by) - len(part)))
    return text.replace(part, by)


def _initial(text: str) -> str:
    return re.sub(r"[^\W_]+", lambda found: found.group().capitalize(), text)


def _item(text: str, separator: str, index: int) -> str | None:
    """SPLIT_INDEX, from 0: an empty text has no part, and without a separator blanks are one."""
    parts = re.split(re.escape(separator) or r"\s", text) if text else []
    return parts[index] if 0 <= index < len(parts) else None


_GROUP = "Texts"
FUNCTIONS = (
    Function(
        "||",
        "a || b",
        "Also `CONCAT(a, ...)`: null where one is null; other types are written as CAST does.",
        _concatenate,
        (
            ("'a' || 'b'", "ab"),
            ("'a' || CAST(NULL AS STRING)", None),
            ("CONCAT('a', 1, TRUE)", "a1TRUE"),
        ),
        _GROUP,
    ),
    Function(
        "CONCAT_WS",
        "CONCAT_WS(separator, a, ...)",
        "Nulls are left out.",
        takes("text text*", STRING, _with_separator, nulls=True),
        (("CONCAT_WS('~', 'AA', CAST(NULL AS STRING), 'BB')", "AA~BB"),),
        _GROUP,
    ),
    Function(
        "UPPER", "UPPER(a)", "", takes("text", STRING, str.upper), (("UPPER('aß')", "ASS"),), _GROUP
    ),
    Function(
        "LOWER", "LOWER(a)", "", takes("text", STRING, str.lower), (("LOWER('AB')", "ab"),), _GROUP
    ),
    Function(
        "INITCAP",
        "INITCAP(a)",
        "Each word begins with a capital letter.",
        takes("text", STRING, _initial),
        (("INITCAP('hello wORLD')", "Hello World"),),
        _GROUP,
    ),
    Function(
        "CHAR_LENGTH",
        "CHAR_LENGTH(a)",
        "Also `CHARACTER_LENGTH`, `LENGTH`: characters.",
        takes("text", INT, len),
        (("CHAR_LENGTH('äb')", "2"), ("LENGTH('abc')", "3")),
        _GROUP,
    ),
    Function(
        "SUBSTRING",
        "SUBSTRING(a FROM b [FOR c])",
        "Also `SUBSTRING(a, b[, c])`, `SUBSTR`. From 1; below zero from the end.",
        takes("text integer integer?", STRING, _substring),
        (
            ("SUBSTRING('hello' FROM 2 FOR 3)", "ell"),
            ("SUBSTR('hello', -3)", "llo"),
            ("SUBSTRING('hello', 2)", "ello"),
            ("CONCAT('<', SUBSTRING('hello', -7, 4), '>')", "<>"),
        ),
        _GROUP,
    ),
    Function(
        "LEFT",
        "LEFT(a, length)",
        "",
        takes("text integer", STRING, lambda text, size: text[: max(size, 0)]),
        (("LEFT('abc', 2)", "ab"),),
        _GROUP,
    ),
    Function(
        "RIGHT",
        "RIGHT(a, length)",
        "",
        takes("text integer", STRING, lambda text, size: text[-size:] if size > 0 else ""),
        (("RIGHT('abc', 2)", "bc"),),
        _GROUP,
    ),
    Function(
        "TRIM",
        "TRIM([BOTH | LEADING | TRAILING] [c FROM] a)",
        "spaces, or the characters of c.",
        takes("text text text", STRING, _trim),
        (
            ("TRIM('  a ')", "a"),
            ("TRIM(LEADING 'x' FROM 'xxax')", "ax"),
            ("TRIM(TRAILING FROM 'a ')", "a"),
        ),
        _GROUP,
    ),
    Function(
        "LTRIM",
        "LTRIM(a[, characters])",
        "",
        takes("text text?", STRING, _trimmer(str.lstrip)),
        (("LTRIM('  a ')", "a "),),
        _GROUP,
    ),
    Function(
        "RTRIM",
        "RTRIM(a[, characters])",
        "",
        takes("text text?", STRING, _trimmer(str.rstrip)),
        (("RTRIM(' a ')", " a"),),
        _GROUP,
    ),
    Function(
        "LPAD",
        "LPAD(a, length, fill)",
        "",
        takes("text integer text", STRING, lambda *given: _pad(*given, left=True)),
        (
            ("LPAD('hi', 4, '??')", "??hi"),
            ("LPAD('hi', 1, '??')", "h"),
            ("LPAD('hi', 1, '')", None),
        ),
        _GROUP,
    ),
    Function(
        "RPAD",
        "RPAD(a, length, fill)",
        "",
        takes("text integer text", STRING, lambda *given: _pad(*given, left=False)),
        (("RPAD('hi', 4, '?')", "hi??"),),
        _GROUP,
    ),
    Function(
        "REPLACE",
        "REPLACE(a, b, c)",
        "",
        takes("text text text", STRING, _replace),
        (
            ("REPLACE('hello world', 'world', 'flink')", "hello flink"),
            ("REPLACE('ab', '', 'x')", "xaxbx"),
        ),
        _GROUP,
    ),
    Function(
        "REPEAT",
        "REPEAT(a, times)",
        "",
        takes("text integer", STRING, _repeat),
        (("REPEAT('ab', 2)", "abab"),),
        _GROUP,
    ),
    Function(
        "REVERSE",
        "REVERSE(a)",
        "",
        takes("text", STRING, lambda text: text[::-1]),
        (("REVERSE('abc')", "cba"),),
        _GROUP,
    ),
    Function(
        "POSITION",
        "POSITION(a IN b)",
        "From 1; 0 where there is none.",
        takes("text text", INT, _position),
        (("POSITION('lo' IN 'hello')", "4"), ("POSITION('x' IN 'hello')", "0")),
        _GROUP,
    ),
    Function(
        "LOCATE",
        "LOCATE(a, b[, start])",
        "",
        takes("text text integer?", INT, _position),
        (("LOCATE('l', 'hello', 4)", "4"),),
        _GROUP,
    ),
    Function(
        "INSTR",
        "INSTR(a, b)",
        "Where b is in a.",
        takes("text text", INT, lambda text, part: _position(part, text)),
        (("INSTR('hello', 'l')", "3"),),
        _GROUP,
    ),
    Function(
        "SPLIT_INDEX",
        "SPLIT_INDEX(a, separator, index)",
        "From 0.",
        takes("text text integer", STRING, _item),
        (
            ("SPLIT_INDEX('a,b', ',', 1)", "b"),
            ("SPLIT_INDEX('a,b', ',', 2)", None),
            ("SPLIT_INDEX('', ',', 0)", None),
        ),
        _GROUP,
    ),
)
