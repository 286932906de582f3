"""Wrapped bodies: `{"value": ..., "_metadata": {...}}`, as a sink in raw mode hands them on.

Wrapped is a body with these two keys, whose `_metadata` is an object or null. The DataFlow Operator
also takes a lone `value`, and any second key, which it then drops: `{"value": 5, "unit": "kg"}`.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

VALUE, METADATA = "value", "_metadata"

_BEGINS = r'^\s*\{\s*"(value|_metadata)"\s*:'
_BRACE, _QUOTE, _V, _UNDERSCORE = b'{"v_'


def is_wrapped(body: Any) -> bool:
    if body.__class__ is not dict or len(body) != 2 or VALUE not in body:
        return False
    return isinstance(body.get(METADATA, 0), dict | None)


def unwrap(body: Any) -> Any:
    """The object inside a wrapped body; any other body as it is."""
    return body[VALUE] if is_wrapped(body) and isinstance(body[VALUE], dict) else body


def unwrapped_texts(bodies: pa.Array) -> pa.Array:
    """Unwraps JSON texts: binary in, binary out, and the same array where none is wrapped."""
    if not _suspicious(bodies):
        return bodies
    begin = pc.fill_null(pc.match_substring_regex(bodies, _BEGINS), False).to_pylist()
    if not any(begin):
        return bodies
    texts = zip(begin, bodies.to_pylist(), strict=True)
    return pa.array([_inner(text) if may else text for may, text in texts], pa.binary())


def _suspicious(bodies: pa.Array) -> bool:
    """A glance at three bytes of each: most batches are acquitted for a tenth of the regex."""
    _, offsets, data = bodies.buffers()
    if data is None or data.size < 3:
        return False
    starts = np.frombuffer(offsets, np.int32)[bodies.offset : bodies.offset + len(bodies)]
    letters = np.frombuffer(data, np.uint8)
    starts = np.minimum(starts, letters.size - 3)
    first, second, third = letters[starts], letters[starts + 1], letters[starts + 2]
    compact = (first == _BRACE) & (second == _QUOTE)
    # What is not compact may have blanks before its first key.
    return bool(np.any(~compact | (third == _V) | (third == _UNDERSCORE)))


class _Pair(msgspec.Struct, forbid_unknown_fields=True, rename={"metadata": METADATA}):
    value: msgspec.Raw
    metadata: dict[str, msgspec.Raw] | None


_pair = msgspec.json.Decoder(_Pair).decode


def _inner(text: bytes) -> bytes:
    """The object inside; a body with a duplicate key stays, so that it is rejected."""
    try:
        inner = bytes(_pair(text).value)
        members = json.loads(text, object_pairs_hook=list, parse_int=str)
    except (ValueError, RecursionError):  # msgspec's errors and UnicodeDecodeError are ValueErrors
        return text
    return inner if inner.startswith(b"{") and len(members) == 2 else text
