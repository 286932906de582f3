"""The one statement that stores the rows of a span: an INSERT or a MERGE.

Its own condition is that the checkpoint's row still has the stamp that was stored for it: whoever
takes over stores another one, and what has not begun by then fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dataflow_assets.connectors.trino.client import literal, name_list, quote
from dataflow_assets.connectors.trino.encode import value, wire
from dataflow_assets.connectors.trino.table.stage import MOST_ROWS
from dataflow_assets.connectors.trino.table.table import Column, TrinoPlace, TrinoTable
from dataflow_assets.contracts import DELETE

AT, OPERATION, ABSENT = "_dataflow_at", "_dataflow_op", "_dataflow_absent"
_GONE, _WHOLE = "_dataflow_gone", "_dataflow_whole"
_SYSTEM = (OPERATION, ABSENT)
_ROW = "_dataflow_n"
_PART = 1 << 40  # rows of one attempt, at most: so many chunks of MOST_ROWS


@dataclass(frozen=True)
class Source:
    """The rows of a span: a JSON array, or attempts of a stage in their order."""

    columns: tuple[Column, ...]
    inline: str
    stage: TrinoPlace
    attempts: Sequence[str] = ()

    def sql(self, condition: str) -> str:
        """A query of the rows, values in the columns' types, with AT and the system columns."""
        columns = enumerate(self.columns)
        values = [f"{value(_column(at), c.kind)} AS {_column(at)}" for at, c in columns]
        listed = ", ".join([*values, OPERATION, ABSENT, self._at])
        return f"SELECT {listed} FROM {self._raw} WHERE {condition}"  # noqa: S608 - quoted

    def named_query(self) -> str:
        """A query of the rows under the names of the columns, without those of ours."""
        pairs = zip(_columns(len(self.columns)), self.columns, strict=True)
        listed = ", ".join(f"{text} AS {quote(column.name)}" for text, column in pairs)
        return f"SELECT {listed} FROM ({self.sql('true')})"  # noqa: S608 - quoted

    @property
    def _raw(self) -> str:
        kinds = [f"{_column(at)} {wire(c.kind)}" for at, c in enumerate(self.columns)]
        kinds += [f"{name} varchar" for name in _SYSTEM]
        names = ", ".join([*_columns(len(self.columns)), *_SYSTEM, _ROW])
        body = "body" if self.attempts else literal(self.inline)
        rows = f"CAST(json_parse({body}) AS ARRAY(ROW({', '.join(kinds)})))"
        unnested = f"UNNEST({rows}) WITH ORDINALITY AS given ({names})"
        if not self.attempts:
            return unnested
        mine = ", ".join(map(literal, self.attempts))
        kept = f"(SELECT * FROM {self.stage.quoted_name} WHERE attempt IN ({mine}))"  # noqa: S608
        return f"{kept} AS stage CROSS JOIN {unnested}"

    @property
    def _at(self) -> str:
        """A number in the order of the rows."""
        if not self.attempts:
            return f"{_ROW} AS {AT}"
        order = " ".join(f"WHEN {literal(a)} THEN {n}" for n, a in enumerate(self.attempts))
        return f"(CASE attempt {order} END) * {_PART} + chunk * {MOST_ROWS} + {_ROW} AS {AT}"


def insert(table: TrinoTable, source: Source, condition: str, *, guarded: bool) -> str:
    """Rows that are appended.

    Args:
        table: the target.
        source: the rows.
        condition: without which none is written; its own error ends the statement.
        guarded: as a MERGE that matches nothing: it fails if others add rows meanwhile.
    """
    names = [column.name for column in source.columns]
    rows, own = source.sql(condition), _columns(len(names))
    if not guarded:
        chosen = f"SELECT {', '.join(own)} FROM ({rows})"  # noqa: S608 - names of our own
        return f"INSERT INTO {table.place.quoted_name} ({name_list(names)}) {chosen}"
    values = ", ".join(f"s.{name}" for name in own)
    return (
        f"MERGE INTO {table.place.quoted_name} t USING ({rows}) s ON false "  # noqa: S608 - quoted
        f"WHEN NOT MATCHED THEN INSERT ({name_list(names)}) VALUES ({values})"
    )


def replace(table: TrinoTable, source: Source, inside: str) -> str:
    """Rows in the place of others. One more row matches these; the new ones match nothing.

    Args:
        table: the target.
        source: the rows.
        inside: what is true for the rows of the target, `t`, that are taken out.
    """
    names = [column.name for column in source.columns]
    listed = ", ".join(_columns(len(names)))
    nulls = ", ".join(f"CAST(NULL AS {column.kind.spelling})" for column in source.columns)
    rows = f"SELECT {listed}, 0 AS {_GONE} FROM ({source.sql('true')})"  # noqa: S608 - names of our own
    values = ", ".join(f"s.{name}" for name in _columns(len(names)))
    return (
        f"MERGE INTO {table.place.quoted_name} t USING ({rows} UNION ALL SELECT {nulls}, 1) s "  # noqa: S608
        f"ON s.{_GONE} = CASE WHEN {inside} THEN 1 END AND ({inside}) WHEN MATCHED THEN DELETE "
        f"WHEN NOT MATCHED AND s.{_GONE} = 0 THEN INSERT ({name_list(names)}) VALUES ({values})"
    )


def merge(
    table: TrinoTable, source: Source, condition: str, key: Sequence[str], mark: str | None = None
) -> str:
    """Rows that replace those of their key; of several rows of a key what the last ones carry.

    Args:
        table: the target.
        source: the rows.
        condition: without which none is written; its own error ends the statement.
        key: the columns that rows are matched by.
        mark: the column that says when a key was deleted; None: its row is removed.
    """
    names = [column.name for column in source.columns]
    others = [name for name in names if name not in key]
    places = _places(source, key)
    same = " AND ".join(f"t.{quote(names[at])} = s.{_column(at)}" for at in places)
    sets = ", ".join(f"{quote(n)} = {_keep(n, at)}" for at, n in enumerate(names) if n in others)
    updates = f"WHEN MATCHED THEN UPDATE SET {sets} " if sets else ""
    values = ", ".join(f"s.{name}" for name in _columns(len(names)))
    if mark is None:
        folded = _fold(source, condition, places)
        deletes = f"WHEN MATCHED AND s.{_GONE} THEN DELETE "
    else:
        folded, deletes = _mark(source, condition, places, mark), ""
    return (
        f"MERGE INTO {table.place.quoted_name} t USING ({folded}) s ON {same} {deletes}{updates}"  # noqa: S608 - quoted
        f"WHEN NOT MATCHED AND NOT s.{_GONE} THEN INSERT ({name_list(names)}) VALUES ({values})"
    )


def _keep(name: str, at: int) -> str:
    old = f"CASE WHEN s.{_WHOLE} THEN NULL ELSE t.{quote(name)} END"
    return f"CASE WHEN s.{_has(at)} THEN s.{_column(at)} ELSE {old} END"


def _fold(source: Source, condition: str, key: Sequence[int]) -> str:
    """One row for each key. A delete forgets what came before it."""
    keys = ", ".join(map(_column, key))
    deleted = f"max(IF({OPERATION} = '{DELETE}', {AT}, 0)) OVER (PARTITION BY {keys})"
    rows = f"SELECT *, {deleted} AS _dataflow_deleted FROM ({source.sql(condition)})"  # noqa: S608
    alive = f"{AT} > _dataflow_deleted"
    columns = [*map(_column, key)]
    for at in range(len(source.columns)):
        columns += _last(at, alive, key)
    columns.append(f"NOT coalesce(bool_or({alive}), false) AS {_GONE}")
    columns.append(f"max(_dataflow_deleted) > 0 AS {_WHOLE}")
    return f"SELECT {', '.join(columns)} FROM ({rows}) GROUP BY {keys}"  # noqa: S608 - quoted


def _mark(source: Source, condition: str, key: Sequence[int], mark: str) -> str:
    """One row for each key. A delete keeps what came before it, and the last row says the mark."""
    alive, columns = f"{OPERATION} <> '{DELETE}'", [*map(_column, key)]
    for at, column in enumerate(source.columns):
        if column.name != mark:
            columns += _last(at, alive, key)
            continue
        own = f"IF({_carries(at)}, {_column(at)})"
        now = f"CAST(current_timestamp AT TIME ZONE 'UTC' AS {column.type})"
        last = f"max_by(IF({alive}, {own}, {now}), {AT})"
        columns += [f"true AS {_has(at)}", f"{last} AS {_column(at)}"]
    columns.append(f"NOT coalesce(bool_or({alive}), false) AS {_GONE}")
    columns.append(f"false AS {_WHOLE}")
    rows = f"SELECT {', '.join(columns)} FROM ({source.sql(condition)})"  # noqa: S608 - quoted
    return f"{rows} GROUP BY {', '.join(map(_column, key))}"


def _last(at: int, alive: str, key: Sequence[int]) -> list[str]:
    has = f"{alive} AND {_carries(at)}"
    terms = [f"coalesce(bool_or({has}), false) AS {_has(at)}"]
    if at not in key:
        terms.append(f"max_by({_column(at)}, {AT}) FILTER (WHERE {has}) AS {_column(at)}")
    return terms


def _places(source: Source, names: Sequence[str]) -> list[int]:
    order = [column.name for column in source.columns]
    return [order.index(name) for name in names]


def _columns(count: int) -> list[str]:
    return [_column(at) for at in range(count)]


def _column(at: int) -> str:
    """Rows have columns by number until they reach the table: no name of it meets one of ours."""
    return f"c{at}"


def _carries(at: int) -> str:
    return f"substr({ABSENT}, {at + 1}, 1) <> '1'"


def _has(at: int) -> str:
    return f"_dataflow_has_{at}"
