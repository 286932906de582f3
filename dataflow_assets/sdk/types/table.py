"""A system's types as a table: what their values travel as, and as what they are selected."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from dataflow_assets.contracts import Kind, TypeRow


# reference/types.py
class ListsTypes(ABC):
    """A source of columns with types of its own."""

    @classmethod
    @abstractmethod
    def types(cls) -> tuple[TypeRow, ...]:
        """Returns how the system's types travel, for docs/types.md.

        Called when the reference is generated.
        """


# reference/types.py
class MakesColumns(ABC):
    """A sink that makes tables with typed columns."""

    @classmethod
    @abstractmethod
    def stored_type(cls, column: pa.Field, *, own: bool = False) -> str | None:
        """The type that `TargetTable.create` gives an interchange column, for docs/types.md.

        Called when the reference is generated, for each row of the table of types.

        Args:
            column: as a source delivers it.
            own: whether it is of a source of the sink's own type.

        Returns:
            The type as the system writes it; of text that is more than text by the metadata KIND.
            None where the table gets the very type that the column has in its source.
        """


@dataclass(frozen=True)
class TypeRule:
    """A rule says how the values of some types travel, and what docs/types.md notes about them.

    `cast`: as what they are selected, where not as they are.
    """

    names: tuple[str, ...]
    arrow: pa.DataType
    kind: Kind | None = None
    cast: str = ""
    note: str = ""

    def row(self, *, nullable: bool = True) -> TypeRow:
        """Returns the types as docs/types.md lists them."""
        column = typed_field("", self.arrow, self.kind, nullable=nullable)
        return TypeRow(", ".join(self.names), column, self.note)


def typed_field(
    name: str,
    arrow: pa.DataType,
    kind: Kind | None = None,
    *,
    nullable: bool = True,
    notes: Mapping[bytes, bytes] | None = None,
) -> pa.Field:
    """A column, or one inside of another.

    Args:
        name: of the column; that of a table's own has passed `checked_name`.
        arrow: what its values travel as.
        kind: what its text holds.
        nullable: whether a value may be missing.
        notes: what else its metadata says.
    """
    metadata = {**(notes or {}), **(kind.mark if kind else {})}
    return pa.field(name, arrow, nullable, metadata or None)


def arguments(text: str, quotes: str, comma: str = ",", *, escapes: bool = False) -> Iterator[str]:
    """Returns what stands between commas that are in no parentheses and no quotes.

    Called where the name of a type is taken apart.

    Args:
        text: what stands in the parentheses.
        quotes: the signs that begin and end a quoted name or text.
        comma: what separates.
        escapes: whether a backslash keeps the quote behind it; otherwise it is written twice.
    """
    depth, start, quoted, escaped = 0, 0, "", False
    for at, sign in enumerate(text):
        if quoted:
            quoted = "" if sign == quoted and not escaped else quoted
            escaped = escapes and sign == "\\" and not escaped
        elif sign in quotes:
            quoted = sign
        elif sign in "()":
            depth += 1 if sign == "(" else -1
        elif sign == comma and depth == 0:
            yield text[start:at].strip()
            start = at + 1
    yield text[start:].strip()
