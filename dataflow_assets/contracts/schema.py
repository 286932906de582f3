"""What travels beside the values: system columns, and what a schema says about its columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum

import pyarrow as pa

from dataflow_assets.errors import PermanentError

_RESERVED = "\0"


def system_name(name: str) -> str:
    """The name of a column of ours, which no column of users can have.

    Called where columns are put beside those of a table. It begins with the character NUL, and a
    table with a column of such a name is refused: see `checked_name`.
    """
    return _RESERVED + name


def checked_name(name: str) -> str:
    """The name of a table's column.

    Called by the connectors whose servers allow every name, where they make Arrow's columns.

    Raises:
        PermanentError: it is one of those that `system_name` makes.
    """
    if name.startswith(_RESERVED):
        raise PermanentError(
            f"the column {name!r} cannot be read or filled: its name begins with the character "
            "NUL; rename it"
        )
    return name


def written_name(name: str) -> str:
    """A name of ours as earlier versions spelled it, for what is stored of it."""
    return name.replace(_RESERVED, "_", 1)


# Columns that travel beside the sink's own in every batch.
OFFSET = system_name("offset")  # int64: the record's offset, or its ordinal in a part; ascending
N = system_name("n")  # int32, optional: index of the row within its record
OP = system_name("op")  # int8, optional: INSERT, UPDATE or DELETE; without it all rows are inserts
# binary, optional: bit i (little-endian) set: column i of the batch's own was not in the record
ABSENT = system_name("absent")
# string, optional, beside entries: why one was refused before it got here; else null
REFUSED_ROW = system_name("refused")
SOURCE = "source"  # the stage of what was refused so: only what is left of it can be kept
INSERT, UPDATE, DELETE = 0, 1, 2
SYSTEM_COLUMNS = (OFFSET, N, OP, ABSENT)
# string, optional, beside those in the chunks of a sink that replaces whole rows: why the source
# does not know some values of the row, which a change has left as they were; null: it knows all
UNKNOWN = system_name("unknown")


class Note(bytes, Enum):
    """A key of the metadata with which a schema says something about a column: `of` reads it.

    A value is text. That of a flag is `1`; it is absent where it does not hold.
    """

    KIND = b"dataflow.kind"
    """A `Kind`; `kind_of` reads it."""
    DECIMAL = b"dataflow.decimal"
    """Of numeric text: `10,2`, the digits that its table declares."""
    ELEMENT = b"dataflow.element"
    """Of JSON text that is an array: a schema of one of its elements; `element_of` reads it."""
    METADATA = b"dataflow.metadata"
    """No column of the table, but each row's metadata of this name."""
    LACKS = b"dataflow.lacks"
    """A flag: no column of the table, but each row's UNKNOWN."""
    UNFIT = b"dataflow.unfit"
    """A flag: no column of the table, but a JSON object of each row's values that do not fit their
    columns, in which they are null; null: all fit."""
    PLACE = b"dataflow.place"
    """No column of the table, but a struct of what names each row: `row`; `rows` may share it."""
    DIGITS = b"dataflow.digits"
    """Decimal digits behind the point, or of a second, that are stored."""
    LOOSE = b"dataflow.loose"
    """A flag: texts that differ may be stored as equal ones."""
    PADDED = b"dataflow.padded"
    """A flag: texts that differ in blanks at their end alone are equal."""
    FILLED = b"dataflow.filled"
    """What rows have in it that are older than it, as PostgreSQL writes it."""
    HAS_DEFAULT = b"dataflow.default"
    """A flag: the column may be absent although it is NOT NULL."""
    SCALARS = b"dataflow.scalars"
    """Of text of any other type: the JSON values that it takes too, `boolean` or `number`."""
    MAX_LENGTH = b"dataflow.max_length"
    """The longest text, in characters."""
    INFINITE = b"dataflow.infinite"
    """A flag: moments may be infinite, and a day may end at 24:00:00."""
    KEY = b"dataflow.key"
    """Of the schema itself: a JSON list of the columns that rows are matched by."""
    TYPED = b"dataflow.typed"
    """A flag of a sample itself: it has a table's types, not those of JSON messages."""
    NO_NUL = b"dataflow.no_nul"
    """A flag of the schema itself: text cannot hold U+0000."""

    def marks(self, noted: pa.Field | pa.Schema) -> bool:
        """Returns whether the metadata says something under this key: of a flag, that it holds."""
        return self in (noted.metadata or {})

    def of(self, noted: pa.Field | pa.Schema) -> str | None:
        """Returns what the metadata says under this key; None where it says nothing."""
        value: bytes | None = (noted.metadata or {}).get(self)
        return None if value is None else value.decode()


class Kind(StrEnum):
    """A column of text may hold one of these: `mark` writes it, `kind_of` reads it."""

    JSON = "json"
    NUMERIC = "numeric"
    """Digits, NaN and infinities."""
    UUID = "uuid"
    """Its canonical text."""
    TEXT = "text"
    """The textual form of any other type."""

    @property
    def mark(self) -> dict[bytes, bytes]:
        """Returns the metadata of such a column."""
        return {Note.KIND: self.encode()}

    def field(self, name: str, *, nullable: bool = True) -> pa.Field:
        """A column of such text."""
        return pa.field(name, pa.string(), nullable, self.mark)


_KINDS = {kind.encode(): kind for kind in Kind}
ONE_ROW, ROWS = b"row", b"rows"  # values of PLACE: they name one row, or rows may share them
EVERYTHING = "*"  # among the metadata keys that are read: all of them


def metadata_column(
    name: str, kind: pa.DataType, marks: Mapping[bytes, bytes] | None = None
) -> pa.Field:
    """The column in which metadata of rows travels beside the columns of their table.

    Called by sources, where they make the columns that they deliver.

    Args:
        name: of the metadata.
        kind: of its values.
        marks: what else the column's own metadata says, such as its Kind.
    """
    return pa.field(
        system_name(name), kind, metadata={**(marks or {}), Note.METADATA: name.encode()}
    )


HEADER_LIST = "header-list"
"""The key of a record's metadata that has all headers in their order, with their bytes."""
MESSAGES = pa.schema(
    [
        pa.field("value", pa.binary()),
        pa.field("key", pa.binary()),
        pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
"""The schema of a sink that takes messages."""


def kind_of(field: pa.Field) -> Kind | None:
    """Returns the `Kind` of a string column.

    Called by sinks on the driver and inside tasks, when they choose how a column is written.

    Args:
        field: a column of a batch's schema.

    Returns:
        None where the column is plain text.
    """
    return _KINDS.get((field.metadata or {}).get(Note.KIND, b""))


def element_of(field: pa.Field) -> pa.Field | None:
    """Returns what an array's column of JSON text holds in its arrays.

    Called inside tasks, when values are converted or written.

    Args:
        field: a column of a sink's schema.

    Returns:
        One of the elements as a nullable column; None where the column holds no arrays, or where
        its sink does not say what is in them.
    """
    found = (field.metadata or {}).get(Note.ELEMENT)
    if found is None:
        return None
    return pa.ipc.read_schema(pa.py_buffer(found)).field(0).with_nullable(True)


@dataclass(frozen=True)
class TypeRow:
    """One type of a system, and the interchange column that its values travel in."""

    system: str
    column: pa.Field
    note: str = ""
