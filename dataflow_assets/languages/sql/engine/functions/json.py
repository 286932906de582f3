"""JSON in texts: values at a path of keys and indexes, and what comes where there are none."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from dataflow_assets.languages.sql.engine.casts import cast
from dataflow_assets.languages.sql.engine.first_json import first_json
from dataflow_assets.languages.sql.engine.function import Environment, Function, Resolve, Resolved
from dataflow_assets.languages.sql.engine.functions.signatures import fit
from dataflow_assets.languages.sql.engine.numbers import bounds
from dataflow_assets.languages.sql.engine.types import BOOLEAN, STRING, FlinkType
from dataflow_assets.records.record import MISSING

Value = TypeVar("Value")
RETURNED = ("VARCHAR", "BOOLEAN", "INT", "DOUBLE")
"""The kinds that RETURNING may name, as in Flink."""
_PART = re.compile(r"""\.([\w$-]+)|\['([^']*)'\]|\["([^"]*)"\]|\[([0-9]{1,9})\]""")
_MODE = re.compile(r"\s*(lax|strict)\s+(.*)", re.IGNORECASE | re.DOTALL)
_decode = msgspec.json.Decoder(float_hook=Decimal).decode
_written = msgspec.json.Encoder(decimal_format="number", order="sorted").encode
_KINDS: dict[str, tuple[type, ...]] = {
    "VALUE": (object,),
    "SCALAR": (str, int, Decimal, type(None)),
    "ARRAY": (list,),
    "OBJECT": (dict,),
}


@lru_cache(maxsize=256)
def parse_path(path: str) -> tuple[bool, tuple[str | int, ...]]:
    """Returns whether it is strict, as it is unless it says `lax`; keys and indexes.

    Raises ValueError for anything else that a path may have.
    """
    mode = _MODE.fullmatch(path)
    text = mode[2].strip() if mode else path.strip()
    if not text.startswith("$"):
        raise ValueError("a path begins with $")
    parts: list[str | int] = []
    at = 1
    while at < len(text):
        match = _PART.match(text, at)
        if match is None:
            raise ValueError("a path has keys and indexes only, like $.a.b[0]")
        key = next((one for one in match.groups()[:3] if one is not None), None)
        parts.append(int(match[4]) if key is None else key)
        at = match.end()
    return mode is None or mode[1].lower() == "strict", tuple(parts)


def _find(text: str, path: str) -> Any:
    """MISSING is an error, None is empty.

    At a strict path null, nothing and a text that is not JSON are errors, at a lax one they are
    empty. The text `null` is an error at both.
    """
    strict, parts = parse_path(path)
    value = _whole(text)
    if value is None:
        return MISSING
    if value is MISSING:
        return MISSING if strict else None
    for part in parts:
        if isinstance(value, dict) and isinstance(part, str):
            value = value.get(part, MISSING)
        elif isinstance(value, list) and isinstance(part, int):
            value = value[part] if part < len(value) else MISSING
        else:
            value = MISSING
        if value is MISSING:
            break
    if value is None or value is MISSING:
        return MISSING if strict else None
    return value


def _whole(text: str) -> Any:
    """The value at the front of a text, as Flink reads it; MISSING where there is none."""
    try:
        return _decode(text)
    except msgspec.DecodeError:
        pass
    except (RecursionError, InvalidOperation):
        return MISSING
    try:
        return _decode(first_json(text))
    except (ValueError, msgspec.DecodeError, RecursionError, InvalidOperation):
        return MISSING


def _empty(path: str, *, scalar: bool) -> str:
    return "ERROR" if scalar and parse_path(path)[0] else "EMPTY"


def _value(types: Sequence[FlinkType], environment: Environment) -> Resolved:
    """JSON_VALUE: text, path, the type as a null of it, and twice what to do and a default."""
    fit(types, ("text", "text", "any", "text", "any", "text", "any"))
    kind = types[2]
    read = _reads(kind)
    empty, error = (_default(types[at], kind, environment) for at in (4, 6))

    def call(text: str | None, path: str, _: None, *others: Any) -> Any:
        if text is None:
            return None
        value = _find(text, path)
        if value is not MISSING and value is not None and not isinstance(value, dict | list):
            return read(value)
        nested = isinstance(value, dict | list)
        if value is MISSING or (nested and _empty(path, scalar=True) == "ERROR"):
            return _instead("JSON_VALUE", "ERROR", others[2], error(others[3]))
        return _instead("JSON_VALUE", "EMPTY", others[0], empty(others[1]))

    return Resolved(kind, call, nulls=True)


def _default(given: FlinkType, wanted: FlinkType, environment: Environment) -> Callable[[Any], Any]:
    change = cast(given, wanted, environment.local)
    if change is None:
        raise ValueError(f"the default is {given}, and the result {wanted}")
    return lambda value: None if value is None else change(value)


def _instead(name: str, what: str, behaviour: str, default: Value) -> Value:
    if behaviour == "ERROR":
        reason = "nothing is there" if what == "EMPTY" else "there is no value at the path"
        raise ValueError(f"{name}: {reason}, and ERROR ON {what} says that this is an error")
    return default


def _reads(wanted: FlinkType) -> Callable[[Any], Any]:
    if wanted.text:
        return _text
    return lambda value: _as_type(value, wanted)


def _text(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _as_type(value: Any, wanted: FlinkType) -> Any:
    number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    if wanted.kind == "BOOLEAN" and isinstance(value, bool):
        return value
    if wanted.kind == "DOUBLE" and number:
        return float(value)
    if wanted.kind == "INT" and number and isinstance(value, int):
        least, most = bounds("INT")
        if least <= value <= most:
            return value
    raise ValueError(f"JSON_VALUE: the value is not of the type {wanted}")


def _query(types: Sequence[FlinkType], _: Environment) -> Resolved:
    """JSON_QUERY: text, path, wrapper, and what to do where it is empty, and on errors."""
    fit(types, ("text", "text", "text", "text", "text"))

    def call(text: str, path: str, wrapper: str, on_empty: str, on_error: str) -> str | None:
        value = _find(text, path)
        if value is MISSING:
            return _instead("JSON_QUERY", "ERROR", on_error, _WITHOUT.get(on_error))
        if value is not None and (
            wrapper == "ALWAYS" or (wrapper == "CONDITIONAL" and not isinstance(value, list))
        ):
            value = [value]
        if isinstance(value, dict | list):
            return _written(value).decode()
        what = _empty(path, scalar=value is not None)
        behaviour = on_error if what == "ERROR" else on_empty
        return _instead("JSON_QUERY", what, behaviour, _WITHOUT.get(behaviour))

    return Resolved(STRING, call)


_WITHOUT = {"EMPTY ARRAY": "[]", "EMPTY OBJECT": "{}"}


def _exists(types: Sequence[FlinkType], _: Environment) -> Resolved:
    fit(types, ("text", "text", "text"))

    def call(text: str, path: str, on_error: str) -> bool | None:
        value = _find(text, path)
        if value is not MISSING:
            return value is not None
        default = {"TRUE": True, "UNKNOWN": None}.get(on_error, False)
        return _instead("JSON_EXISTS", "ERROR", on_error, default)

    return Resolved(BOOLEAN, call)


def _is_json(kinds: tuple[type, ...]) -> Resolve:
    def resolve(types: Sequence[FlinkType], _: Environment) -> Resolved:
        fit(types, ("text",))
        return Resolved(BOOLEAN, lambda text: _is(text, kinds), nulls=True)

    return resolve


def _is(text: str | None, kinds: tuple[type, ...]) -> bool:
    value = MISSING if text is None else _whole(text)
    return value is not MISSING and isinstance(value, kinds)


_GROUP = "JSON"
_PATH = (
    "Paths have keys and indexes: `$.a.b[0]`; `lax` in front of one makes what is missing, null, "
    "or not JSON at all empty, and no error. The text `null` is an error at each path."
)
_TEXT = """'{"a": {"b": [1, "x"]}, "c": 1.50}'"""
FUNCTIONS = (
    Function(
        "JSON_VALUE",
        "JSON_VALUE(text, path [RETURNING type] [NULL | ERROR | DEFAULT a ON EMPTY] "
        "[... ON ERROR])",
        "A text, number or boolean; null for anything else, unless it says otherwise. RETURNING "
        "has STRING, BOOLEAN, INT and DOUBLE, and a value of another type rejects the record. "
        f"{_PATH}",
        _value,
        (
            (f"JSON_VALUE({_TEXT}, '$.a.b[1]')", "x"),
            (f"JSON_VALUE({_TEXT}, '$.c')", "1.50"),
            (f"JSON_VALUE({_TEXT}, '$.a.b[0]' RETURNING INT) + 1", "2"),
            (f"JSON_VALUE({_TEXT}, '$.a')", None),
            (f"JSON_VALUE({_TEXT}, 'lax $.x' DEFAULT 'none' ON EMPTY)", "none"),
            (f"JSON_VALUE({_TEXT}, '$.x' DEFAULT 'none' ON EMPTY)", None),
            (f"JSON_VALUE({_TEXT}, '$.x' RETURNING INT DEFAULT -1 ON ERROR)", "-1"),
        ),
        _GROUP,
    ),
    Function(
        "JSON_QUERY",
        "JSON_QUERY(text, path [WITHOUT | WITH [CONDITIONAL] ARRAY WRAPPER] "
        "[NULL | ERROR | EMPTY ARRAY | EMPTY OBJECT ON EMPTY] [... ON ERROR])",
        "An object or array as text, its keys in order; null for anything else, unless it says "
        f"otherwise. {_PATH}",
        _query,
        (
            (f"JSON_QUERY({_TEXT}, '$.a')", '{"b":[1,"x"]}'),
            (f"JSON_QUERY({_TEXT}, '$.c' WITH ARRAY WRAPPER)", "[1.50]"),
            (f"JSON_QUERY({_TEXT}, '$.a.b' WITH CONDITIONAL ARRAY WRAPPER)", '[1,"x"]'),
            (f"JSON_QUERY({_TEXT}, '$.x' EMPTY ARRAY ON ERROR)", "[]"),
            (f"JSON_QUERY({_TEXT}, 'lax $.x' EMPTY OBJECT ON EMPTY)", "{}"),
            ("""JSON_QUERY('{"b": 1, "a": {"d": 2, "c": 3}}', '$')""", '{"a":{"c":3,"d":2},"b":1}'),
        ),
        _GROUP,
    ),
    Function(
        "JSON_EXISTS",
        "JSON_EXISTS(text, path [TRUE | FALSE | UNKNOWN | ERROR ON ERROR])",
        f"False where JSON's null is. {_PATH}",
        _exists,
        (
            (f"JSON_EXISTS({_TEXT}, '$.a.b')", "TRUE"),
            (f"JSON_EXISTS({_TEXT}, '$.a.c')", "FALSE"),
            (f"JSON_EXISTS({_TEXT}, '$.a.c' UNKNOWN ON ERROR)", None),
            ("""JSON_EXISTS('{"a": null}', '$.a')""", "FALSE"),
        ),
        _GROUP,
    ),
    *(
        Function(
            f"IS JSON {kind}",
            f"a IS [NOT] JSON{'' if kind == 'VALUE' else f' {kind}'}",
            "Whether a text is JSON; text behind the first value is left out."
            if kind == "VALUE"
            else "",
            _is_json(types),
            ((f"'[]' IS JSON {kind}", "TRUE" if kind in ("VALUE", "ARRAY") else "FALSE"),),
            _GROUP,
        )
        for kind, types in _KINDS.items()
    ),
)
