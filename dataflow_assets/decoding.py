"""JSON and MessagePack into types of ours, by any number of threads.

msgspec looks at a type when its first text is decoded, and no lock guards that: where two threads
decode the first texts of one type at the same moment, the process dies of a segmentation fault
(msgspec 0.22). The flows of a lane open their sessions at the same moment, each in a thread.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
_LOOKING = threading.Lock()
_JSON: dict[Any, msgspec.json.Decoder[Any]] = {}
_MSGPACK: dict[Any, msgspec.msgpack.Decoder[Any]] = {}


def decode_json(text: bytes | str, kind: type[T]) -> T:
    """The value of a JSON text. Called on the driver and in tasks, by any thread.

    Args:
        text: one document.
        kind: a struct, or a type with structs inside.

    Returns:
        The value. Raises msgspec.DecodeError, of which msgspec.ValidationError is one.
    """
    return _json(kind).decode(text)


def decode_msgpack(data: bytes, kind: type[T]) -> T:
    """The value of a MessagePack document. Called on the driver, by any thread.

    Args:
        data: one document.
        kind: a struct, or a type with structs inside.

    Returns:
        The value. Raises msgspec.DecodeError, of which msgspec.ValidationError is one.
    """
    return _msgpack(kind).decode(data)


def _json(kind: type[T]) -> msgspec.json.Decoder[T]:
    found = _JSON.get(kind)
    if found is None:
        with _LOOKING:
            found = _JSON[kind] = msgspec.json.Decoder(kind)
    return found


def _msgpack(kind: type[T]) -> msgspec.msgpack.Decoder[T]:
    found = _MSGPACK.get(kind)
    if found is None:
        with _LOOKING:
            found = _MSGPACK[kind] = msgspec.msgpack.Decoder(kind)
    return found
