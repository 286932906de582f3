"""Aggregates as the Kinesis Producer Library packs them, byte by byte as its documents say."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

MAGIC = b"\xf3\x89\x9a\xc2"
UserRecord = tuple[str, bytes] | tuple[str, bytes, int]
"""Partition key and data, and an explicit hash key."""


def aggregate(records: Sequence[UserRecord]) -> bytes:
    body = b"".join(_field(1, key.encode()) for key, *_ in records)
    explicit = [str(one[2]) for one in records if len(one) == 3]
    body += b"".join(_field(2, key.encode()) for key in explicit)
    hashed = iter(range(len(explicit)))
    for at, one in enumerate(records):
        packed = b"\x08" + _varint(at)
        packed += b"\x10" + _varint(next(hashed)) if len(one) == 3 else b""
        packed += _field(3, one[1])
        body += _field(3, packed + _field(4, _field(1, b"a tag")))
    return sealed(body)


def sealed(body: bytes) -> bytes:
    """With what begins and ends an aggregate."""
    return MAGIC + body + hashlib.md5(body).digest()  # noqa: S324 - the format's own


def _field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])
