"""What a column's modifier, such as the scale of a numeric, would change: refused by its name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dataflow_assets.connectors.postgresql.client import TextLink, quote
from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure, PostgresqlKind
from dataflow_assets.connectors.postgresql.frames.frame_table import PostgresqlFrameTable
from dataflow_assets.errors import PermanentError

LONGEST = 80
# The types of other schemas are staged as they are: not all of them can be compared.
_TYPES = """
WITH RECURSIVE base AS (
    SELECT attname, format_type(atttypid, atttypmod) AS target, atttypid AS type, atttypmod AS mod
    FROM pg_attribute
    WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped
  UNION ALL
    SELECT attname, target, t.typbasetype, t.typtypmod
    FROM base JOIN pg_type t ON t.oid = base.type AND t.typtype = 'd'
)
SELECT attname, target,
       CASE WHEN t.typnamespace = 'pg_catalog'::regnamespace AND mod >= 0
            THEN format_type(type, -1) ELSE target END
FROM base JOIN pg_type t ON t.oid = base.type AND t.typtype <> 'd'
"""


@dataclass(frozen=True)
class ColumnTypes:
    """The type of a column of the target, and of the stage: without what changes values."""

    target: str
    staged: str


def column_types(link: TextLink, place: PostgresqlFrameTable) -> dict[str, ColumnTypes]:
    """Returns those of all columns of a table, by name."""
    rows = link.execute(_TYPES, place.name)
    return {name: ColumnTypes(target, staged) for name, target, staged in rows}


@dataclass(frozen=True)
class StagedValues:
    """The staged rows of a frame that count."""

    link: TextLink
    place: str
    """The target, as errors name it."""
    rows: str
    """FROM and WHERE of the rows, with a parameter for their attempts."""
    attempts: list[str]

    def refuse_changes(self, types: Mapping[str, ColumnTypes]) -> None:
        """Raises PermanentError for a value that would be rounded or cut off in its column."""
        narrower = {name: each for name, each in types.items() if each.staged != each.target}
        if narrower and self._any(_changes(name, each) for name, each in narrower.items()):
            for name, each in narrower.items():
                self._refuse(name, each)

    def _any(self, changes: Iterable[str]) -> bool:
        try:
            return bool(self._first("1", " OR ".join(changes)))
        except PostgresqlFailure:
            return True

    def _first(self, value: str, condition: str) -> list[tuple[object, ...]]:
        query = f"SELECT {value} {self.rows} AND ({condition}) LIMIT 1"
        return self.link.execute(query, self.attempts)

    def _refuse(self, name: str, kind: ColumnTypes) -> None:
        try:
            rows = self._first(f"{quote(name)}::text", _changes(name, kind))
            reason = f"would change {str(rows[0][0])[:LONGEST]}" if rows else ""
        except PostgresqlFailure as failure:
            if failure.kind is not PostgresqlKind.REFUSED:
                raise
            reason = f"does not take a value: {failure}"
        if reason:
            raise PermanentError(
                f"{self.place}: column {name} is {kind.target}, which {reason}; round or cast it "
                "in the frame, or alter the table"
            )


def _changes(name: str, kind: ColumnTypes) -> str:
    """A condition on a value; it fails for a value that the type has no room for."""
    return f"{quote(name)} <> {quote(name)}::{kind.target}"
