"""The rows of a stage into their table: what is refused, and the one statement that stores them."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from dataflow_assets.connectors.trino.client import TrinoClient, name_list, quote
from dataflow_assets.connectors.trino.errors import CONFLICT, TrinoFailure
from dataflow_assets.connectors.trino.frames.conditions import condition
from dataflow_assets.connectors.trino.table import capabilities, statement
from dataflow_assets.connectors.trino.table.table import Column, TrinoTable
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.table_frames import Mode, several_of_one_key
from dataflow_assets.sdk.table_partitions import Partitions

ATTEMPTS = 30


@dataclass(frozen=True)
class TrinoRows:
    """The rows of one frame. Methods raise Failure and PermanentError."""

    client: TrinoClient
    table: TrinoTable
    source: statement.Source
    key: tuple[str, ...]
    partitions: Partitions | None
    merges: bool
    """Whether a MERGE is one commit, which sees the rows of others: it replaces all rows of a table
    whose layout and comments stay, where CREATE OR REPLACE TABLE makes another one."""

    def check(self, mode: Mode) -> None:
        """Raises PermanentError for rows that no later run would find and replace."""
        several = f"GROUP BY {name_list(self.key)} HAVING count(*) > 1"
        if mode == "upsert" and self._first(self.key, several):
            raise several_of_one_key(self.table.place)
        if self.partitions is not None:
            names = self.partitions.columns
            inside = condition(self.partitions, self.table)
            if row := self._first(names, f"WHERE NOT coalesce({inside}, false)"):
                raise self.partitions.outside(self.table.place, dict(zip(names, row, strict=True)))

    def _first(self, names: tuple[str, ...], clauses: str) -> list[object]:
        """A row of which the clauses are true; empty where there is none."""
        texts = ", ".join(f"CAST({quote(name)} AS varchar)" for name in names)
        rows = self.source.named_query()
        firsts = self.client.rows(f"SELECT {texts} FROM ({rows}) {clauses} LIMIT 1")  # noqa: S608 - quoted
        return list(firsts[0]) if firsts else []

    def store(self, mode: Mode) -> None:
        """Again where another writer was quicker.

        Not rows that are appended: the conflict may be a lost answer, and they may be stored.
        """
        text = self._statement(mode)
        for number in range(1, ATTEMPTS + 1):
            try:
                self.client.run(text)
            except TrinoFailure as failure:
                if failure.name != CONFLICT or number == ATTEMPTS or mode == "append":
                    raise
                time.sleep(random.random() * min(number, 5))  # noqa: S311 - writers that meet part
            else:
                return

    def _statement(self, mode: Mode) -> str:
        if mode == "upsert":
            return statement.merge(self.table, self.source, "true", self.key)
        if mode == "append":
            return statement.insert(self.table, self.source, "true", guarded=False)
        if self.partitions is not None:
            inside = condition(self.partitions, self.table, "t.")
            return statement.replace(self.table, self.source, inside)
        if self.merges:
            return statement.replace(self.table, self.source, _every_row(self.table))
        names = {column.name for column in self.source.columns}
        values = ", ".join(_value(column, names) for column in self.table.columns)
        query = f"SELECT {values} FROM ({self.source.named_query()})"  # noqa: S608 - quoted
        return f"CREATE OR REPLACE TABLE {self.table.place.quoted_name} AS {query}"


def check_merge(table: TrinoTable, able: capabilities.Capabilities) -> None:
    """Raises PermanentError where partitions of an asset cannot be replaced by one statement."""
    needs = f"mode overwrite of an asset with partitions needs MERGE, which for {table.place}"
    if not able.merge:
        raise PermanentError(
            f"{needs} does not work: {able.why}; use mode upsert or append, or a catalog that has "
            "MERGE, such as Iceberg's"
        )
    if not able.is_isolated:
        raise PermanentError(
            f"{needs} leaves the rows of two that run at once: {capabilities.isolating(table)}"
        )


def _every_row(table: TrinoTable) -> str:
    """Returns a condition that is true for each row, though Trino looks at the row to know it.

    A join whose condition is about one side alone compares each row of both with each other.
    """
    return f"(t.{quote(table.columns[0].name)} IS NULL) >= false"


def _value(column: Column, given: set[str]) -> str:
    name = quote(column.name)
    return name if column.name in given else f"CAST(NULL AS {column.kind.spelling}) AS {name}"
