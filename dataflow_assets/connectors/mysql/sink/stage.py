"""Upserts by a key: a temporary table of the connection, and what moves its rows.

Never by INSERT ... ON DUPLICATE KEY UPDATE: that would update the row of another key where any
other unique index has the value, and refuse a change of some columns that an insert would need
more of. Keys are equal as the table compares them: two spellings of one key that meet are refused
by the key of the temporary table, and come apart as the rows are halved. Steps would lose the order
of such rows, so where there are several the keys of all are put there first.
"""

from __future__ import annotations

from itertools import count

import pyarrow as pa

from dataflow_assets.connectors.mysql.client import MysqlClient, quote
from dataflow_assets.connectors.mysql.sink.encode import inserts
from dataflow_assets.connectors.mysql.sink.fold import MysqlStep
from dataflow_assets.connectors.mysql.table.table import (
    compares_exactly,
    key_of,
    stage_columns,
)

_STAGE = "dataflow_stage"


class MysqlStage:
    """Made outside of a transaction: servers with GTIDs allow it nowhere else."""

    def __init__(self, link: MysqlClient, place: str, schema: pa.Schema) -> None:
        self._link, self._place, self._schema = link, place, schema
        self._key = key_of(schema)
        self.has_spellings = not all(compares_exactly(schema.field(name)) for name in self._key)
        self._same = " AND ".join(f"t.{quote(name)} = s.{quote(name)}" for name in self._key)
        # In the order of the stage: a target without statistics would be read whole.
        self._joined = f"{_STAGE} AS s STRAIGHT_JOIN {place} AS t ON {self._same}"
        known = {name.lower() for name in schema.names}
        self._mark = next(n for n in (f"dataflow_{i}" for i in count()) if n not in known)
        columns = [*stage_columns(schema, self._key), f"{self._mark} BOOLEAN"]
        columns.append(f"PRIMARY KEY ({_list(self._key)})")
        link.run(f"DROP TEMPORARY TABLE IF EXISTS {_STAGE}")
        link.run(f"CREATE TEMPORARY TABLE {_STAGE} ({', '.join(columns)}) ENGINE=InnoDB")

    def fill(self, rows: pa.RecordBatch) -> None:
        """Puts rows into the temporary table alone. Raises Failure where two have one key."""
        self._link.run(f"DELETE FROM {_STAGE}")  # noqa: S608 - ours
        fields = [self._schema.field(name) for name in rows.schema.names]
        for statement in inserts(_STAGE, rows, fields, None, self._link.longest_statement):
            self._link.load(statement)

    def apply(self, step: MysqlStep) -> None:
        """Stores the rows of a step. Raises Failure where one of them is refused."""
        self.fill(step.rows)
        names = step.rows.schema.names
        if step.verb == "delete":
            self._link.run(f"DELETE t FROM {self._joined}")
            return
        changed = [quote(name) for name in names if name not in self._key]
        sets = [*(f"t.{name} = s.{name}" for name in changed), f"s.{self._mark} = TRUE"]
        self._link.run(f"UPDATE {self._joined} SET {', '.join(sets)}")  # noqa: S608 - quoted
        if step.verb == "upsert":
            self._insert_new(step.rows.num_rows, names)

    def _insert_new(self, rows: int, names: list[str]) -> None:
        """Inserts what the update has not met; a row that came since then is a duplicate key.

        No statement where no key is new: it would be refused for columns that a change lacks.
        """
        if self._link.run(f"DELETE FROM {_STAGE} WHERE {self._mark}") < rows:  # noqa: S608 - ours
            listed = _list(names)
            self._link.run(
                f"INSERT INTO {self._place} ({listed}) SELECT {listed} FROM {_STAGE}"  # noqa: S608 - quoted
            )


def _list(names: list[str] | tuple[str, ...]) -> str:
    return ", ".join(map(quote, names))
