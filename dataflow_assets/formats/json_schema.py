"""JSON values that a JSON Schema allows, as producers of a registry write them."""

from __future__ import annotations

import json

import jsonschema_rs

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.record import NotJson, parse


class JsonSchemaEncoder:
    """Passes bodies that the schema allows; made once per process."""

    def __init__(self, text: str) -> None:
        """Raises ValueError where the text is no JSON Schema, or one that refers to others."""
        try:
            schema = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(
                f"line {error.lineno}, column {error.colno}: no JSON: {error.msg}"
            ) from None
        except RecursionError:
            raise ValueError("nested too deeply") from None
        try:
            self._validator = jsonschema_rs.validator_for(schema, offline=True)
        except (jsonschema_rs.ValidationError, ValueError, TypeError) as error:
            message = (str(error).splitlines() or [""])[0]
            raise ValueError(f"no JSON Schema that can be used offline: {message}") from None

    def __call__(self, body: bytes) -> bytes:
        """The body itself. Raises RejectedRecord where the schema does not allow it."""
        value = parse(body)
        if isinstance(value, NotJson):
            raise RejectedRecord("encode", "not JSON, which a value of a schema is made of")
        try:
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            place = ".".join(map(str, error.instance_path)) or "the body"
            rule = ".".join(map(str, error.schema_path))
            raise RejectedRecord("encode", f"{place}: breaks {rule} of the schema") from None
        except ValueError:
            raise RejectedRecord("encode", "nested too deeply") from None
        return body
