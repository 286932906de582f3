"""JSON behind the number of a schema: bodies with a head, without one, short, empty and null."""

from __future__ import annotations

import pyarrow as pa
import pytest

from dataflow_assets.formats.json import HeadedJsonFormat

HEAD = b"\0\0\0\0\1"
BODIES: list[tuple[bytes | None, bytes | None]] = [
    (HEAD + b'{"a":1}', b'{"a":1}'),
    (b'{"a":2}', b'{"a":2}'),
    (None, None),
    (b"", b""),
    (b"\0", b""),
    (b"\0\0\0", b""),
    (HEAD, b""),
    (HEAD + HEAD + b"{}", HEAD + b"{}"),
]
"""Bodies, and what is read of each."""


def _bodies(pairs: list[tuple[bytes | None, bytes | None]]) -> pa.Array:
    """Behind one that is sliced away, so that the bodies do not begin where their buffer does."""
    return pa.array([b"\0other", *(body for body, _ in pairs)], pa.binary()).slice(1)


@pytest.mark.parametrize("pairs", [BODIES, BODIES[1:4], BODIES[2:3], []])
def test_the_head_alone_is_taken_away(pairs: list[tuple[bytes | None, bytes | None]]) -> None:
    bodies = _bodies(pairs)
    assert HeadedJsonFormat().texts(bodies).texts.to_pylist() == [value for _, value in pairs]
    groups = HeadedJsonFormat().columns(bodies).groups
    found = [
        pair
        for group in groups
        for pair in zip(group.at.tolist(), group.rows.to_pylist(), strict=True)
    ]
    assert found == [(at, value) for at, (_, value) in enumerate(pairs) if value is not None]
