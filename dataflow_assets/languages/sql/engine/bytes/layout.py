"""Which columns are in the bytes of a key or value, and how they are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dataflow_assets.languages.sql.engine.types import FlinkType

Kind = Literal["json", "csv", "avro", "raw"]
Times = Literal["SQL", "ISO-8601", "RFC-3339"]
Envelope = Literal["debezium", "canal", "maxwell"]
"""Of messages that are changes of rows: by what they were captured."""
Spelling = Literal["Flink's", "before"]
"""How numbers and texts are written: as Flink does, or as versions of ours did before."""
RAW_BYTES = {"TINYINT": 1, "SMALLINT": 2, "INT": 4, "BIGINT": 8, "FLOAT": 4, "DOUBLE": 8}
"""How many a raw number has."""


@dataclass(frozen=True)
class FlinkLayout:
    """The bytes of a key, or of a value. Sent to the tasks."""

    kind: Kind
    names: tuple[str, ...]
    """As they are in the bytes: without `key.fields-prefix`."""
    types: tuple[FlinkType, ...]
    nullable: tuple[bool, ...]
    times: Times = "SQL"
    ignore_errors: bool = False
    """A field that cannot be read is null, bytes that cannot be read are skipped."""
    fail_on_missing: bool = False
    ignore_nulls: bool = False
    plain_decimals: bool = False
    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    array_delimiter: str = ";"
    null_literal: str | None = None
    comments: bool = False
    named: bool = False
    """Of Avro: bytes begin with the number of their schema in a registry."""
    subject: str = ""
    """Of that schema; empty: by the topic's name."""
    charset: str = "UTF-8"
    endianness: Literal["big", "little"] = "big"

    def subject_of(self, topic: str, what: str) -> str:
        """Under which the schema of a topic's keys or values (`what`) is registered."""
        return self.subject or f"{topic}-{what}"

    @property
    def raw_fraction(self) -> str:
        """Returns how `struct` names the bytes of a raw FLOAT or DOUBLE."""
        order = ">" if self.endianness == "big" else "<"
        return f"{order}{'f' if self.types[0].kind == 'FLOAT' else 'd'}"


@dataclass(frozen=True)
class ChangeLayout(FlinkLayout):
    """A value that is a change: rows with these columns, in the envelope of what captured them."""

    envelope: Envelope = "debezium"
    primary: tuple[str, ...] = ()
    """The columns of the PRIMARY KEY; empty: a row is known by all of its columns."""
    database: str = ""
    """A regular expression: of other databases nothing is read; empty: of all of them."""
    table: str = ""
    """The same for tables."""


@dataclass(frozen=True)
class Layouts:
    """The layouts of the records of one topic."""

    value: FlinkLayout
    key: FlinkLayout | None = None
    """None: records have no keys, or keys are not read."""
    key_columns: tuple[str, ...] = ()
    """The columns of the key, as the table names them, in the order of its layout."""
    metadata: tuple[tuple[str, str], ...] = ()
    """Of the columns that are written beside key and value the name, and the key of METADATA."""
