"""Paths as functions that write, by sjson's rules; only what lies on the path is copied.

Missing parents are made: an array where an index follows, else an object; null is replaced by them.
Any other value in the way, which sjson would replace in silence, rejects the record, and so does an
array where an object is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.paths.parts import APPEND, Key
from dataflow_assets.records.record import MISSING, NotJson

Put = Callable[[Any, Any], Any]
Drop = Callable[[Any], Any]

FARTHEST = 10_000  # places past the end of an array; `a.999999999` would fill the memory


def setter(keys: Sequence[Key], path: str) -> Put:
    if len(keys) > 2 or any(key.index is not None for key in keys):
        return _any_depth(keys, path)
    return _one(keys, path) if len(keys) == 1 else _two(keys, path)


def _one(keys: Sequence[Key], path: str) -> Put:
    key, otherwise = keys[0].text, _any_depth(keys, path)

    def put(body: Any, value: Any) -> Any:
        return {**body, key: value} if type(body) is dict else otherwise(body, value)

    return put


def _two(keys: Sequence[Key], path: str) -> Put:
    outer, inner, otherwise = keys[0].text, keys[1].text, _any_depth(keys, path)

    def put(body: Any, value: Any) -> Any:
        if type(body) is dict:
            parent = body.get(outer)
            if type(parent) is dict:
                return {**body, outer: {**parent, inner: value}}
        return otherwise(body, value)

    return put


def _any_depth(keys: Sequence[Key], path: str) -> Put:
    def put(body: Any, value: Any) -> Any:
        if isinstance(body, NotJson):
            raise RejectedRecord("step", f"{path}: the body is not valid JSON")
        return _put(body, keys, value, path)

    return put


def _put(node: Any, keys: Sequence[Key], value: Any, path: str) -> Any:
    if not keys:
        return value
    head, rest = keys[0], keys[1:]
    if type(node) is dict:
        return {**node, head.text: _put(node.get(head.text, MISSING), rest, value, path)}
    if type(node) is not list:
        if node is not MISSING and node is not None:
            raise RejectedRecord("step", f"{path}: the parent is not an object")
        return _new(head, _put(MISSING, rest, value, path), path)
    if head.index is None:
        raise RejectedRecord("step", f"{path}: there is an array where an object is needed")
    index = len(node) if head.index == APPEND else head.index
    if index < len(node):
        return [*node[:index], _put(node[index], rest, value, path), *node[index + 1 :]]
    return [*node, *_gap(index - len(node), path), _put(MISSING, rest, value, path)]


def _new(head: Key, value: Any, path: str) -> Any:
    if head.index is None:
        return {head.text: value}
    return [*_gap(max(head.index, 0), path), value]


def _gap(length: int, path: str) -> list[None]:
    if length > FARTHEST:
        why = f"more than {FARTHEST} places past the end of the array"
        raise RejectedRecord("step", f"{path}: {why}")
    return [None] * length


def remover(keys: Sequence[Key]) -> Drop:
    """Body -> a new body; the same one where nothing is."""
    if len(keys) > 1 or keys[0].index is not None:
        return lambda body: _drop(body, keys)
    key = keys[0].text

    def drop(body: Any) -> Any:
        if type(body) is not dict or key not in body:
            return body
        left = body.copy()
        del left[key]
        return left

    return drop


def _drop(node: Any, keys: Sequence[Key]) -> Any:
    at = _place(node, keys[0])
    if at is None:
        return node
    if len(keys) == 1:
        left = node.copy()
        del left[at]
        return left
    inner = _drop(node[at], keys[1:])
    if inner is node[at]:
        return node
    changed = node.copy()
    changed[at] = inner
    return changed


def _place(node: Any, key: Key) -> Any:
    """The key or index to look at; None where there is none."""
    if type(node) is dict:
        return key.text if key.text in node else None
    if type(node) is not list or key.index is None:
        return None
    index = len(node) - 1 if key.index == APPEND else key.index
    return index if 0 <= index < len(node) else None
