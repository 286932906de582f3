"""Options of a sink of messages for the format of their values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from typing_extensions import override

from dataflow_assets.contracts import Sink
from dataflow_assets.errors import PermanentError
from dataflow_assets.formats.schema_files import (
    AvroTextWithDefaults,
    JsonSchemaText,
    NamesFiles,
    SchemaPath,
    default_problem,
    json_problem,
    read,
)
from dataflow_assets.formats.schema_registry import SchemaRegistry
from dataflow_assets.formats.value_schema import ValueSchema
from dataflow_assets.spec import Addition, Needs

_AVRO = Needs("format", "avro")
_JSON_SCHEMA = Needs("format", "json-schema")
_STORED = {"avro": "AVRO", "json-schema": "JSON"}


class FormattedSink(Sink, NamesFiles):
    """A sink of messages whose values are JSON, or values of a schema."""

    format: Annotated[Literal["json", "avro", "json-schema"], Addition()] = "json"
    """Format of the values. `json`: bodies as they are. `avro` and `json-schema`: values of a
    schema, with its number in the registry in front; what the schema does not take is a rejected
    record. With `avro` so is a member without a field, unless `unknownFields: ignore`."""
    schema_registry: Annotated[SchemaRegistry | None, Addition()] = None
    """Where the schema is registered. Avro without a registry: values have no number in front."""
    subject: Annotated[str | None, Addition()] = None
    """Of the schema in the registry; `<topic>-value` by default."""
    avro_schema: Annotated[AvroTextWithDefaults, Addition(), _AVRO] = None
    """The Avro schema, as JSON; a new one is registered. Without any, the newest of the subject is
    used, as it is when the flow starts."""
    avro_schema_file: Annotated[SchemaPath, Addition(), _AVRO] = None
    """Path of the Avro schema, where `avroSchema` is not given; a relative one begins in the folder
    of the manifest."""
    json_schema: Annotated[JsonSchemaText, Addition(), _JSON_SCHEMA] = None
    """The JSON Schema, as text; a new one is registered. Without any, the newest of the subject is
    used, as it is when the flow starts."""
    json_schema_file: Annotated[SchemaPath, Addition(), _JSON_SCHEMA] = None
    """Path of the JSON Schema, where `jsonSchema` is not given."""

    @override
    def broken_rules(self) -> Iterator[str]:
        yield from super().broken_rules()
        if self.schema_registry is not None:
            return
        if self.format == "json-schema":
            yield "format: json-schema needs schemaRegistry, for its readers"
        if self.format == "avro" and not (self.avro_schema or self.avro_schema_file):
            yield "format: avro needs a schema: set schemaRegistry, avroSchema or avroSchemaFile"

    @override
    def remarks(self) -> Iterator[tuple[str, str]]:
        yield from super().remarks()
        for name in ("schema_registry", "subject"):
            if self.format == "json" and getattr(self, name):
                yield name, "has no effect without format: avro or json-schema"
        if self.format == "json-schema" and self.unknown_fields == "ignore":
            yield (
                "unknown_fields",
                "has no effect with format: json-schema: its additionalProperties decides",
            )
        if self.format == "avro" and self.subject and self.schema_registry is None:
            yield "subject", "has no effect without schemaRegistry"

    @override
    def file_problems(self) -> Iterator[tuple[str, str]]:
        if self.format == "json":
            return
        try:
            self._own()
        except PermanentError as error:
            key, _, message = str(error).partition(": ")
            yield key, message

    def value_schema(self, topic: str) -> ValueSchema | None:
        """The schema that values are written with.

        Called on the driver, once for each attempt of a run; this asks the registry.

        Args:
            topic: by which the subject is named where the manifest names none.

        Returns:
            None where bodies are values as they are.

        Raises:
            TransientError where the registry cannot be reached; PermanentError where it refuses the
            schema, has none, or a file cannot be used.
        """
        if self.format == "json":
            return None
        text, ignored = self._own(), self.unknown_fields == "ignore"
        if self.schema_registry is None:
            return ValueSchema(self.format, text or "", None, ignored)
        client, subject = self.schema_registry.client(), self.subject or f"{topic}-value"
        kind = _STORED[self.format]
        if text is not None:
            return ValueSchema(self.format, text, client.register(subject, kind, text), ignored)
        number, found = client.latest(subject)
        if found.kind != kind or found.references:
            what = "refers to other schemas" if found.kind == kind else f"is of type {found.kind}"
            raise PermanentError(
                f"{client}: the newest schema of subject {subject} {what}, which a sink of format: "
                f"{self.format} cannot write; give the whole schema in the manifest"
            )
        if wrong := (default_problem if kind == "AVRO" else json_problem)(found.text):
            raise PermanentError(f"{client}: the newest schema of subject {subject}: {wrong}")
        return ValueSchema(self.format, found.text, number, ignored)

    def _own(self) -> str | None:
        """The manifest's own schema. Raises PermanentError where its file cannot be used."""
        key, text, file = "avroSchemaFile", self.avro_schema, self.avro_schema_file
        if self.format == "json-schema":
            key, text, file = "jsonSchemaFile", self.json_schema, self.json_schema_file
        if text or not file:
            return text
        schema_text = read(Path(file), key)
        if wrong := (default_problem if self.format == "avro" else json_problem)(schema_text):
            raise PermanentError(f"{key}: {file}: {wrong}")
        return schema_text
