"""Renaming the keys of JSON objects: what the steps that change their case share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from operator import is_
from typing import Any

from dataflow_assets.errors import RejectedRecord

KEPT = 10_000  # keys repeat; but where they are ids, remembering every one would fill the memory
KEPT_OBJECTS = 1_000  # sets of keys, for the same reason
LARGEST = 100  # keys of an object that is looked up as a whole
_NESTED = frozenset({dict, list})


def renamer(rename: Callable[[str], str], *, deep: bool) -> Callable[[Any], Any]:
    """Body -> the body under the new names; the very same object when every name stays.

    Not `deep`: the body's own keys only; no value is looked at. Raises RejectedRecord when two keys
    of one object would get the same name: one of their values would be lost; and for one that is
    nested too deeply.
    """
    name = lru_cache(KEPT)(rename)
    cached = lru_cache(KEPT_OBJECTS)(lambda keys: _names(keys, name))

    def names(body: dict[str, Any]) -> tuple[str, ...] | None:
        keys = tuple(body)
        return cached(keys) if len(keys) <= LARGEST else _names(keys, name)

    def top(body: Any) -> Any:
        renamed = names(body) if isinstance(body, dict) else None
        return body if renamed is None else dict(zip(renamed, body.values(), strict=False))

    def everywhere(value: Any) -> Any:
        if isinstance(value, dict):
            renamed = {
                name(key): everywhere(item) if item.__class__ in _NESTED else item
                for key, item in value.items()
            }
            if len(renamed) < len(value):
                raise _collision(value, name)
            same = list(renamed) == list(value) and all(map(is_, renamed.values(), value.values()))
            return value if same else renamed
        if isinstance(value, list):
            items = list(map(everywhere, value))
            return value if all(map(is_, items, value)) else items
        return value

    def whole(body: Any) -> Any:
        try:
            return everywhere(body)
        except RecursionError:
            raise RejectedRecord("step", "nested too deeply") from None

    return whole if deep else top


def _names(keys: tuple[str, ...], name: Callable[[str], str]) -> tuple[str, ...] | None:
    """The new names of an object's keys; None where every one stays."""
    names = tuple(map(name, keys))
    if len(set(names)) < len(names):
        raise _collision(keys, name)
    return None if names == keys else names


def _collision(keys: Iterable[str], name: Callable[[str], str]) -> RejectedRecord:
    first: dict[str, str] = {}
    for key in keys:
        if (other := first.setdefault(name(key), key)) != key:
            break
    return RejectedRecord("step", f"the keys {other} and {key} would both become {name(key)}")
