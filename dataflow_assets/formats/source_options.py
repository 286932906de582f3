"""Options of a source for the format of its messages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from typing_extensions import override

from dataflow_assets.contracts import Source, SourceTraits
from dataflow_assets.contracts.source import NullMessages
from dataflow_assets.errors import PermanentError
from dataflow_assets.formats.message_format import MessageFormat
from dataflow_assets.formats.schema_files import (
    AvroText,
    AvroTextWithDefaults,
    NamesFiles,
    SchemaPath,
    default_problem,
    problem,
    read,
)
from dataflow_assets.formats.schema_registry import SchemaRegistry
from dataflow_assets.secrets import Fills, SecretRef
from dataflow_assets.spec import Addition, Needs

Ref = SecretRef | None
_AVRO = Needs("format", "avro")


class MessageSource(Source):
    """A declared source of messages."""

    tombstones: Annotated[NullMessages, Addition()] = "reject"
    """What a null message means: a rejected record, nothing, or the deletion of its key."""

    @property
    def traits(self) -> SourceTraits:
        """Returns what the option `tombstones` comes to."""
        deletes = "tombstones: delete" if self.tombstones == "delete" else ""
        return SourceTraits(null_messages=self.tombstones, sends_deletes=deletes)


class FormattedSource(MessageSource, NamesFiles):
    """A source whose messages are JSON, or values of a schema."""

    format: Literal["json", "avro", "protobuf"] = "json"
    """Format of the messages. `protobuf` is an addition, and needs `schemaRegistry`."""
    key_format: Annotated[Literal["text", "avro"], Addition()] = "text"
    """Format of the keys. `avro`: a key begins with the id of a schema, as a message does; a key
    that is a record becomes a JSON object, so that `tombstones: delete` finds the columns in it."""
    schema_registry: SchemaRegistry | None = None
    """The registry with the schemas whose ids messages begin with."""
    avro_schema: Annotated[AvroText, _AVRO] = None
    """The Avro schema, as JSON, of messages that do not begin with the id of a schema."""
    avro_schema_secret_ref: Annotated[Ref, _AVRO, Fills("avro_schema")] = None
    """Secret with the Avro schema."""
    avro_schema_file: Annotated[SchemaPath, _AVRO] = None
    """Path of the Avro schema, where `avroSchema` is not given; a relative one begins in the folder
    of the manifest. It is read when the flow starts."""
    avro_head: Annotated[Literal["registry", "ignored"], Addition(), _AVRO] = "registry"
    """`ignored`: the byte 0 and the id of a schema, with which messages of a registry begin, are
    removed, and all messages are decoded by `avroSchema`. A message that begins with the byte
    0, and does not fit the schema without its first five bytes, is decoded as a whole."""
    json_head: Annotated[Literal["none", "ignored"], Addition(), Needs("format", "json")] = "none"
    """`ignored`: the byte 0 and the id of a schema, which JSON serializers of a registry put at the
    beginning of a message, are removed. Messages without them are read as they are."""
    avro_reader_schema: Annotated[AvroTextWithDefaults, Addition(), _AVRO] = None
    """The Avro schema that all records get, whatever schema they were written with, by Avro's rules
    of schema resolution: a field that only this schema has gets its default, a field that it does
    not have is left out."""
    avro_reader_schema_file: Annotated[SchemaPath, Addition(), _AVRO] = None
    """Path of that schema, where `avroReaderSchema` is not given."""

    @override
    def broken_rules(self) -> Iterator[str]:
        yield from super().broken_rules()
        if self.format == "protobuf" and self.schema_registry is None:
            yield "format: protobuf needs schemaRegistry, where the schemas are"
        if self.key_format == "avro" and not (self.format == "avro" and self.schema_registry):
            yield "keyFormat: avro needs format: avro and schemaRegistry"
        schemas = (self.avro_schema, self.avro_schema_secret_ref, self.avro_schema_file)
        if self.avro_head == "ignored" and (self.schema_registry or not any(schemas)):
            yield (
                "avroHead: ignored needs avroSchema, by which all messages are read, and no "
                "registry"
            )
        if self.format == "avro" and not any(schemas) and self.schema_registry is None:
            ways = "schemaRegistry, avroSchema, avroSchemaFile or avroSchemaSecretRef"
            yield f"format: avro needs a schema: set {ways}"

    @override
    def remarks(self) -> Iterator[tuple[str, str]]:
        yield from super().remarks()
        if self.format == "json" and self.schema_registry:
            yield "schema_registry", "has no effect without format: avro or protobuf"
        if self.avro_schema_file and (self.avro_schema or self.avro_schema_secret_ref):
            yield "avro_schema_file", "is not read: avroSchema is there"
        if self.avro_reader_schema_file and self.avro_reader_schema:
            yield "avro_reader_schema_file", "is not read: avroReaderSchema is there"

    @override
    def file_problems(self) -> Iterator[tuple[str, str]]:
        if self.format != "avro":
            return
        for key, file, text in (
            ("avroSchemaFile", self.avro_schema_file, self.avro_schema),
            ("avroReaderSchemaFile", self.avro_reader_schema_file, self.avro_reader_schema),
        ):
            if file and not text:
                try:
                    self._text(key.removesuffix("File"), None, file)
                except PermanentError as error:
                    yield key, str(error).partition(": ")[2]

    def message_format(self) -> MessageFormat | None:
        """Returns what the bodies of messages are written in; None for JSON.

        Called by the driver once for each attempt of a run, with all secrets in place, and by
        previews and replays; what is returned travels to the tasks. Files that it is made of are
        read here.

        Raises:
            PermanentError where a file cannot be read, or a schema in it cannot be used.
        """
        if self.format == "json":
            from dataflow_assets.formats.json import HeadedJsonFormat

            return HeadedJsonFormat() if self.json_head == "ignored" else None
        schemas = self.schema_registry.client() if self.schema_registry else None
        if self.format == "protobuf":
            from dataflow_assets.formats.protobuf import ProtobufFormat

            assert schemas is not None  # noqa: S101 - the options need one
            return ProtobufFormat(schemas)
        if self.avro_schema_secret_ref and not (self.avro_schema or "").strip():
            raise PermanentError("avroSchemaSecretRef: the Secret is empty; it must hold a schema")
        from dataflow_assets.formats.avro import AvroFormat

        return AvroFormat(
            self._text("avroSchema", self.avro_schema, self.avro_schema_file),
            schemas,
            self._text("avroReaderSchema", self.avro_reader_schema, self.avro_reader_schema_file),
            head_ignored=self.avro_head == "ignored",
            keys_named=self.key_format == "avro",
        )

    @staticmethod
    def _text(key: str, text: str | None, file: str | None) -> str | None:
        """A schema as text. Raises PermanentError for one that cannot be used."""
        schema = text or (read(Path(file), key) if file else None)
        judge = default_problem if key == "avroReaderSchema" else problem
        if schema and (wrong := judge(schema)):
            where = "the schema" if text else file
            raise PermanentError(f"{key}: {where}: {wrong}")
        return schema
