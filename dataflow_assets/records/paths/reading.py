"""Paths as functions that read: one closure per part, the plain ones flat and fast.

Where a path finds nothing it yields MISSING. A pattern goes on to the next key that fits when what
follows is missing under the first, as gjson does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dataflow_assets.records.paths.modifiers import SUPPORTED, flatten_deep
from dataflow_assets.records.paths.parts import Each, Glob, Key, Modifier, Part, Pipe, Query
from dataflow_assets.records.paths.queries import glob, test
from dataflow_assets.records.record import MISSING, NotJson

Get = Callable[[Any], Any]


def reader(parts: Sequence[Part]) -> Get:
    """Body -> what is there, or MISSING."""
    for at, part in enumerate(parts):
        if isinstance(part, Pipe):
            return _then(_getter(parts[:at]), reader(parts[at + 1 :]))
    return _getter(parts)


def _getter(parts: Sequence[Part]) -> Get:
    plain = [part for part in parts if isinstance(part, Key)]
    if len(plain) == len(parts):
        return _keys(plain)
    head, rest = parts[0], parts[1:]
    match head:
        case Key():
            return _then(_keys([head]), _getter(rest))
        case Glob():
            return _glob(head, rest)
        case Each():
            return _each(head, rest)
        case Query():
            return _query(head, rest)
        case Modifier():
            return _then(_modifier(head), _getter(rest))
        case Pipe():
            raise AssertionError("reader() splits at pipes")


def _then(first: Get, second: Get) -> Get:
    def get(body: Any) -> Any:
        inner = first(body)
        return MISSING if inner is MISSING else second(inner)

    return get


def _keys(keys: Sequence[Key]) -> Get:
    if any(key.index is not None for key in keys) or len(keys) not in {1, 2}:
        return _walk([(key.text, -1 if key.index is None else key.index) for key in keys])
    return _one(keys[0].text) if len(keys) == 1 else _two(keys[0].text, keys[1].text)


def _one(key: str) -> Get:
    def get(body: Any) -> Any:
        return body.get(key, MISSING) if type(body) is dict else MISSING

    return get


def _two(outer: str, inner: str) -> Get:
    def get(body: Any) -> Any:
        if type(body) is dict:
            body = body.get(outer)
            if type(body) is dict:
                return body.get(inner, MISSING)
        return MISSING

    return get


def _walk(steps: Sequence[tuple[str, int]]) -> Get:
    def get(body: Any) -> Any:
        for key, index in steps:
            if type(body) is dict:
                body = body.get(key, MISSING)
            elif type(body) is list and 0 <= index < len(body):
                body = body[index]
            else:
                return MISSING
        return body

    return get


def _glob(head: Glob, rest: Sequence[Part]) -> Get:
    """A modifier looks at the first match only, whatever it makes of it."""
    ends = (at for at, part in enumerate(rest) if isinstance(part, Modifier | Each | Query))
    end = next(ends, len(rest))
    if end < len(rest) and isinstance(rest[end], Modifier):
        return _then(_glob(head, rest[:end]), _getter(rest[end:]))
    matches, inner = glob(head.text).fullmatch, _getter(rest)

    def get(body: Any) -> Any:
        for key, value in body.items() if type(body) is dict else ():
            if matches(key):
                members = inner(value)
                if members is not MISSING:
                    return members
        return MISSING

    return get


def _each(head: Each, rest: Sequence[Part]) -> Get:
    inner = _getter(rest)
    as_key = _then(_one("#"), inner)
    whole: Get = len if head.text == "#" else list

    def get(body: Any) -> Any:
        if type(body) is list:
            return _collect(body, inner) if rest else whole(body)
        if type(body) is dict and head.text == "#":
            return as_key(body)
        return MISSING

    return get


def _collect(items: Iterable[Any], inner: Get) -> list[Any]:
    return [value for item in items if (value := inner(item)) is not MISSING]


def _query(head: Query, rest: Sequence[Part]) -> Get:
    element, holds, inner = reader(head.path), test(head.sign, head.literal), _getter(rest)
    whole = not head.path

    def fits(item: Any) -> bool:
        return (whole or isinstance(item, dict | list)) and holds(element(item))

    def first(body: Any) -> Any:
        element = next(filter(fits, body), MISSING) if type(body) is list else MISSING
        return MISSING if element is MISSING else inner(element)

    def every(body: Any) -> Any:
        return _collect(filter(fits, body), inner) if type(body) is list else MISSING

    return every if head.every else first


def _modifier(part: Modifier) -> Get:
    change = flatten_deep if part.deep else SUPPORTED[part.name]
    return lambda body: MISSING if isinstance(body, NotJson) else change(body)
