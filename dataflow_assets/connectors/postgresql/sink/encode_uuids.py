"""UUIDs in text as the 16 bytes that `uuid_recv` reads."""

from __future__ import annotations

from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure
from dataflow_assets.formats.text_forms import UUID as CANONICAL
from dataflow_assets.formats.text_forms import all_have

_DASHES = (8, 13, 18, 23)


def uuids(values: pa.Array, name: str) -> pa.Array:
    """UUID text as 16 bytes each: at once where it is canonical, else one by one."""
    found = canonical(values)
    if found is not None:
        return found
    return pa.array([_parse(value, name) for value in values.to_pylist()], pa.binary(16))


def canonical(values: pa.Array) -> pa.Array | None:
    """The same at once; None where one of them has another form."""
    text = values.drop_null()
    if not len(text):
        return pa.nulls(len(values), pa.binary(16))
    return _from_hex(values, text) if all_have(CANONICAL, text) else None


def _from_hex(values: pa.Array, text: pa.Array) -> pa.Array:
    letters = np.frombuffer(_join(text), dtype=np.uint8).reshape(-1, 36)
    digits = np.delete(letters, _DASHES, axis=1)
    nibbles = np.where(digits >= 97, digits - 87, np.where(digits >= 65, digits - 55, digits - 48))
    packed = (nibbles[:, 0::2] << 4 | nibbles[:, 1::2]).astype(np.uint8)
    whole = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(16), len(text), [None, pa.py_buffer(packed.tobytes())]
    )
    if not values.null_count:
        return whole
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    places = pa.array(np.cumsum(valid) - 1, mask=~valid)
    return whole.take(places)


def _join(text: pa.Array) -> bytes:
    joined: bytes = (
        pc.binary_join(pa.ListArray.from_arrays([0, len(text)], text), "")[0].as_py().encode()
    )
    return joined


def _parse(value: str | None, name: str) -> bytes | None:
    if value is None:
        return None
    try:
        return UUID(value).bytes
    except ValueError:
        message = f'invalid input syntax for type uuid: "{value}"'
        raise PostgresqlFailure(message, "22P02", column=name) from None
