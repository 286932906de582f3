"""CREATE TABLE from a sample, and ALTER TABLE for columns that come later."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from dataflow_assets.connectors.mysql import types
from dataflow_assets.connectors.mysql.client import MysqlClient, quote
from dataflow_assets.connectors.mysql.errors import DENIED, MysqlFailure
from dataflow_assets.connectors.mysql.options import MysqlSinkOptions
from dataflow_assets.errors import PermanentError
from dataflow_assets.errors.likely_names import did_you_mean

_BYTES = 3072  # of an index of InnoDB, at four for a character
_MADE = "DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6)"
_OWN = {"created_at": _MADE, "updated_at": f"{_MADE} ON UPDATE CURRENT_TIMESTAMP(6)"}
_STORAGE = "ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE "


def create(link: MysqlClient, sink: MysqlSinkOptions, sample: pa.Schema) -> None:
    """Makes the target unless a racing flow has. Commits whatever transaction is open."""
    make_table(link, statement(sink, sample, link.collation))


def statement(sink: MysqlSinkOptions, sample: pa.Schema, collation: str) -> str:
    """The DDL: the columns found, sorted, the manifest's types over them, a primary key."""
    return f"{_statement(sink, sample)} {_STORAGE}{collation}"


def _statement(sink: MysqlSinkOptions, sample: pa.Schema) -> str:
    key = sink.raw_key
    if sink.raw_mode:
        columns = {} if key else {"id": "BIGINT AUTO_INCREMENT PRIMARY KEY"}
        known = {"data": f"{types.JSON} NOT NULL", "_metadata": types.JSON}
        found = {f.name: _declaration(f) for f in sink.raw_columns(sample)}
        columns |= {n: known.get(n, kind) for n, kind in found.items()}
        columns |= _OWN | {"deleted_at": "DATETIME(6)"}
    else:
        found = {f.name: _declaration(f) for f in sample} | dict(sink.columns)
        if not found:
            raise sink.no_columns()
        key = _primary(sink, found)
        columns = {name: found[name] for name in sorted(found)}
        marks = {sink.soft_delete_column: "DATETIME(6)"} if sink.soft_delete_column else {}
        columns |= {name: kind for name, kind in (_OWN | marks).items() if name not in found}
    lines = list(_lines(columns | dict(sink.columns), key, sink))
    if key:
        lines.append(f"PRIMARY KEY ({', '.join(map(quote, key))})")
    body = ",\n  ".join(lines)
    return f"CREATE TABLE IF NOT EXISTS {quote(*sink.place())} (\n  {body}\n)"


def _lines(
    columns: Mapping[str, str], key: tuple[str, ...], sink: MysqlSinkOptions
) -> Iterator[str]:
    """Text of any length is no key: a longer one than the index takes is rejected."""
    found = [n for n in key if columns[n] in types.UNBOUNDED and n not in sink.columns]
    for name, kind in columns.items():
        longest = min(255, _BYTES // 4 // max(len(found), 1))
        bounded = f"{types.UNBOUNDED[kind]}({longest})" if name in found else kind
        implicit = bounded.lower().startswith("timestamp") and "null" not in bounded.lower()
        yield f"{quote(name)} {bounded}" + " NULL" * implicit  # older servers add NOT NULL


def _primary(sink: MysqlSinkOptions, columns: Mapping[str, str]) -> tuple[str, ...]:
    if not sink.upsert_mode:
        return ()
    key = sink.conflict_key or (("id",) if "id" in columns else ())
    if absent := [name for name in key if name not in columns]:
        raise PermanentError(
            f"table {sink.address().name} cannot be made: conflictKey {', '.join(absent)} is in "
            "none of the first records; name it under `columns` with its type, or correct "
            f"conflictKey{did_you_mean(absent[0], sorted(columns))}"
        )
    return key


def adding(sink: MysqlSinkOptions, columns: pa.Schema, known: frozenset[str]) -> str:
    """The DDL that adds the columns that are not known, of the manifest's types where given.

    MySQL has no IF NOT EXISTS for columns.
    """
    added = [
        f"ADD COLUMN {quote(f.name)} {sink.columns.get(f.name) or _declaration(f)} NULL"
        for f in columns
        if f.name not in known
    ]
    return f"ALTER TABLE {quote(*sink.place())} {', '.join(added)}" if added else ""


def _declaration(column: pa.Field) -> str:
    return types.declaration(column).replace("%", "%%")  # of a member of an enum


def make_table(link: MysqlClient, statement: str) -> None:
    """Runs a CREATE TABLE. Raises PermanentError with it, where the user may not."""
    try:
        link.run(statement)
    except MysqlFailure as failure:
        if failure.code not in DENIED:
            raise
        text = " ".join(statement.split())
        raise PermanentError(
            f"a table cannot be made: {failure.reason}; let the user create tables, or run: {text}"
        ) from None
