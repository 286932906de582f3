"""The schema that a sink writes values with: from the driver, which asks the registry, to tasks."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import msgspec
import pyarrow as pa

from dataflow_assets.records.decoding import decode_json

KEY = b"dataflow.value_schema"
"""In the metadata of a ticket's schema."""
MAGIC = b"\0"
Encode = Callable[[bytes], bytes]
"""A JSON body as a value. Raises RejectedRecord where the schema does not take it."""
Kind = Literal["avro", "json-schema"]


class ValueSchema(msgspec.Struct, frozen=True):
    """Made by the driver when a branch opens."""

    kind: Kind
    text: str
    number: int | None = None
    """Under which the registry has it; None: values have no number in front."""
    ignore_unknown: bool = False
    """A member without a field is left out; else it rejects its record."""
    key_number: int | None = None
    """Under which the registry has the schema of keys; None: keys have no number in front."""

    def mark(self, schema: pa.Schema) -> pa.Schema:
        """A ticket's schema that carries this one to the tasks."""
        return schema.with_metadata({**(schema.metadata or {}), KEY: msgspec.json.encode(self)})

    @classmethod
    def of(cls, schema: pa.Schema) -> ValueSchema | None:
        text = (schema.metadata or {}).get(KEY)
        return None if text is None else decode_json(text, cls)

    def encoder(self) -> Encode:
        """Returns what writes values; made once per process.

        Raises ValueError where the text is no schema.
        """
        return _encoder(self)


@lru_cache(maxsize=64)
def _encoder(schema: ValueSchema) -> Encode:
    write = _writer(schema)
    if schema.number is None:
        return write
    head = head_of(schema.number)
    return lambda body: head + write(body)


def head_of(number: int) -> bytes:
    """With which a value of a registry's schema begins."""
    return MAGIC + number.to_bytes(4, "big")


def _writer(schema: ValueSchema) -> Encode:
    if schema.kind == "avro":
        from dataflow_assets.formats.avro_encoder import AvroEncoder

        return AvroEncoder(schema.text, ignore_unknown=schema.ignore_unknown)
    from dataflow_assets.formats.json_schema import JsonSchemaEncoder

    return JsonSchemaEncoder(schema.text)
