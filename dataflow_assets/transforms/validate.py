"""validate: records must fit a JSON Schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field, ValidationError, field_validator
from pydantic_core import InitErrorDetails, PydanticCustomError
from typing_extensions import override

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.record import NotJson, Record
from dataflow_assets.records.step import Apply, Context, Example, Origins, Step

if TYPE_CHECKING:
    import jsonschema_rs

_TYPES = "array, boolean, integer, null, number, object, string"
_ORDER = {
    "type": "object",
    "required": ["id"],
    "properties": {"id": {"type": "integer"}, "total": {"type": "number", "minimum": 0}},
}
_NAMED = {"properties": {"tel": {"$ref": "#/$defs/tel"}}, "$defs": {"tel": {"pattern": "^[0-9]+$"}}}


class Validate(Step):
    """Rejects a record that does not fit a JSON Schema; one that fits passes unchanged.

    The reason names the path and the rule of the schema, never the value. Drafts 4 to 2020-12 by
    `$schema`, else 2020-12; a `format` is checked, not only noted. Numbers are compared exactly,
    but for a fraction against a bound of more than 64 bits. A body that is not JSON is rejected; a
    tombstone passes, for it holds nothing that could be checked.
    """

    type: ClassVar[str] = "validate"
    addition: ClassVar[bool] = True
    json_schema: dict[str, Any] = Field(alias="schema", min_length=1)
    """The schema. A `$ref` points into it (`#/$defs/...`): nothing is ever fetched."""

    examples: ClassVar[tuple[Example, ...]] = (
        Example("fits", {"schema": _ORDER}, '{"id":1,"total":2.50}', ('{"id":1,"total":2.50}',)),
        Example("a key is missing", {"schema": _ORDER}, '{"total":1}', error="id: is required"),
        Example(
            "another type",
            {"schema": _ORDER},
            '{"id":"1"}',
            error="id: breaks properties.id.type of the schema",
        ),
        Example(
            "exactly, however long the number",
            {"schema": {"properties": {"n": {"maximum": 0.3}}}},
            '{"n":0.30000000000000000000000000001}',
            error="n: breaks properties.n.maximum of the schema",
        ),
        Example(
            "inside an array",
            {"schema": {"items": {"properties": {"q": {"multipleOf": 0.01}}}}},
            '[{"q":1.13},{"q":1.135}]',
            error="1.q: breaks items.properties.q.multipleOf of the schema",
        ),
        Example(
            "a part of the schema used by name",
            {"schema": _NAMED},
            '{"tel":"+1"}',
            error="tel: breaks $defs.tel.pattern of the schema",
        ),
        Example(
            "a format",
            {"schema": {"properties": {"at": {"format": "date-time"}}}},
            '{"at":"yesterday"}',
            error="at: breaks properties.at.format of the schema",
        ),
        Example(
            "the body as a whole",
            {"schema": _ORDER},
            "[1]",
            error="the body: breaks type of the schema",
        ),
        Example("not JSON", {"schema": _ORDER}, "hello", error="the body: is not valid JSON"),
        Example("a tombstone: unchanged", {"schema": _ORDER}, None, (None,)),
    )

    @field_validator("json_schema")
    @classmethod
    def _usable(cls, schema: dict[str, Any]) -> dict[str, Any]:
        from jsonschema_rs import ValidationError as Broken

        try:
            _validator(schema)
        except Broken as error:
            place, message = _finding(schema, error)
            kind = PydanticCustomError("json_schema", "{message}", {"message": message})
            at = InitErrorDetails(type=kind, loc=place, input=None)
            raise ValidationError.from_exception_data("schema", [at]) from None
        return schema

    @override
    def origins(self, column: str) -> Origins:
        return frozenset({column})

    @override
    def compile(self, context: Context) -> Apply:
        validator = _validator(self.json_schema)
        fits = validator.is_valid

        def apply(record: Record) -> Record:
            body = record.body
            if isinstance(body, NotJson):
                if body.empty:
                    return record
                raise RejectedRecord("step", "the body: is not valid JSON")
            if fits(body):
                return record
            raise RejectedRecord("step", _reason(validator, body))

        return apply


def _validator(schema: dict[str, Any]) -> jsonschema_rs.Validator:
    import jsonschema_rs

    return jsonschema_rs.validator_for(
        schema, validate_formats=True, ignore_unknown_formats=False, offline=True
    )


def _reason(validator: jsonschema_rs.Validator, body: Any) -> str:
    """Which rule the body breaks first. Deeply nested ones cannot be told, but are wrong too."""
    from jsonschema_rs import ValidationError as Broken

    try:
        validator.validate(body)
    except Broken as error:
        path = ".".join(map(str, error.instance_path))
        if error.kind.name == "required":
            return f"{path}.{error.kind.value}".lstrip(".") + ": is required by the schema"
        return f"{path or 'the body'}: breaks {'.'.join(map(str, error.schema_path))} of the schema"
    except ValueError:
        pass
    return "the body: breaks the schema, nested too deeply to say where"


def _finding(schema: Any, error: jsonschema_rs.ValidationError) -> tuple[tuple[Any, ...], str]:
    place = tuple(error.instance_path)
    if place[-1:] == ("format",):
        return place, "is not a format that can be checked: leave it out, or use pattern"
    if place[-1:] == ("type",):
        return place, f"is not a type of JSON Schema; allowed: {_TYPES}"
    if place[-1:] == ("pattern",):
        return place, "is not a regular expression"
    if place:
        return place, f"breaks the rule {error.kind.name} of JSON Schema"
    return next(
        _unresolved_references(schema, error.message),
        ((), "is not a schema that can be used offline"),
    )


def _unresolved_references(schema: Any, message: str) -> Iterator[tuple[tuple[Any, ...], str]]:
    """The references that the library's message quotes, and what is wrong with them."""
    for place, uri in _references(schema):
        if any(f"'{part}'" in message for part in (uri, *uri.split("#")) if part):
            reason = "is not a known draft of JSON Schema"
            alien = "is not part of this schema: nothing is fetched, so put it under $defs"
            yield place, reason if place[-1] == "$schema" else alien


def _references(schema: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], str]]:
    entries = schema.items() if isinstance(schema, dict) else enumerate(schema)
    for key, value in entries:
        if key in {"$ref", "$dynamicRef", "$schema"} and isinstance(value, str):
            yield (*place, key), value
        elif isinstance(value, dict | list):
            yield from _references(value, (*place, key))
