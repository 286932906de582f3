"""JSON and MessagePack into types of ours, by any number of threads.

msgspec looks at a type when its first text is decoded, and no lock guards that: where two threads
decode the first texts of one type at the same moment, the process dies of a segmentation fault
(msgspec 0.22). The flows of a lane open their sessions at the same moment, each in a thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
_LOOKING = threading.Lock()
_DECODERS: dict[tuple[Any, Any], Any] = {}
"""By format and type."""


def decode_json(text: bytes | str, kind: type[T]) -> T:
    """The value of a JSON text. Called on the driver and in tasks, by any thread.

    Args:
        text: one document.
        kind: a struct, or a type with structs inside.

    Returns:
        The value. Raises msgspec.DecodeError, of which msgspec.ValidationError is one.
    """
    value: T = _decoder(msgspec.json.Decoder, kind).decode(text)
    return value


def decode_msgpack(data: bytes, kind: type[T]) -> T:
    """The value of a MessagePack document. Called on the driver, by any thread.

    Args:
        data: one document.
        kind: a struct, or a type with structs inside.

    Returns:
        The value. Raises msgspec.DecodeError, of which msgspec.ValidationError is one.
    """
    value: T = _decoder(msgspec.msgpack.Decoder, kind).decode(data)
    return value


def _decoder(format_: Callable[[Any], Any], kind: Any) -> Any:
    decoder = _DECODERS.get((format_, kind))
    if decoder is None:
        with _LOOKING:
            decoder = _DECODERS[format_, kind] = format_(kind)
    return decoder
