"""JSON messages as the serializers of a schema registry write them: behind the number of a schema.

The byte 0 and four bytes with the number of a schema come before the value. No JSON text begins
with that byte, so a message without such a head is read as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from dataflow_assets.contracts import Group, Grouped, MessageFormat, Texts

_BYTES = 5
_MAGIC = b"\0"


@dataclass(frozen=True)
class HeadedJsonFormat(MessageFormat):
    """The values behind their heads; the numbers are not looked up."""

    @override
    def columns(self, bodies: pa.Array, as_json: frozenset[str] = frozenset()) -> Grouped:
        at = np.flatnonzero(bodies.is_valid().to_numpy(zero_copy_only=False))
        return Grouped([Group(at, _values(bodies.drop_null()))] if len(at) else [])

    @override
    def texts(self, bodies: pa.Array) -> Texts:
        return Texts(_values(bodies))


def _values(bodies: pa.Array) -> pa.Array:
    if not pc.any(pc.starts_with(bodies, _MAGIC)).as_py():
        return bodies
    return pa.array([_value(body) for body in bodies.to_pylist()], pa.binary())


def _value(body: bytes | None) -> bytes | None:
    return body[_BYTES:] if body and body.startswith(_MAGIC) else body
