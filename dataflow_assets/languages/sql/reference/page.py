"""The page of SQL files: grammar, options and functions, and what each does here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dataflow_assets.languages.common.key_tables import Key
from dataflow_assets.languages.common.pages import escape, section, statements
from dataflow_assets.languages.sql.engine.aggregates import AGGREGATES
from dataflow_assets.languages.sql.engine.functions import FUNCTIONS
from dataflow_assets.languages.sql.engine.metadata import METADATA, WRITABLE
from dataflow_assets.languages.sql.reader import options
from dataflow_assets.languages.sql.reader.bind import ALIASES, PARTS
from dataflow_assets.languages.sql.reader.change_formats import CHANGE_FORMATS
from dataflow_assets.languages.sql.reader.ends import PRODUCERS
from dataflow_assets.languages.sql.reader.settings import SETTINGS
from dataflow_assets.languages.sql.reference import changes as sql_changes
from dataflow_assets.languages.sql.reference import differences, prose
from dataflow_assets.languages.sql.reference.statements import COLUMNS, STATEMENTS, UNNEST, WINDOWS

_AGGREGATES = (
    "Each may be followed by `FILTER (WHERE condition)`. Nulls are not counted. Any other "
    "aggregate is a finding."
)
_FUNCTIONS = (
    "This list is complete: any other function is a finding. Results are Flink's own, but for "
    "[these](#where-answers-differ-from-flinks); each line is a test. An argument that is null "
    "makes the result null, unless the line says otherwise."
)


def render() -> str:
    metadata = ", ".join(f"`{name}` ({kind})" for name, kind in METADATA.items())
    writable = ", ".join(f"`{name}`" for name in WRITABLE)
    columns = [(name, says.format(metadata=metadata, writable=writable)) for name, says in COLUMNS]
    tables = {
        "statements": statements(STATEMENTS),
        "columns": _table(("Column", "Meaning"), columns),
        "unnest": _table(("Join", "Rows"), UNNEST),
        "windows": _table(("Window", "Meaning"), WINDOWS),
    }
    changes = (
        _table(("Message", "What comes of it"), sql_changes.MESSAGES),
        _table(("Format", "Keys"), sql_changes.KEYS),
    )
    formats = (*options.FORMATS, *CHANGE_FORMATS, *_other_formats())
    parts = [
        prose.TOP % tables,
        sql_changes.TEXT % changes,
        section("Options of `kafka` and `upsert-kafka`", "", options.COMMON),
        section("Options of `kafka`", "", options.ONLY_KAFKA),
        section("Options of `upsert-kafka`", "It is read from the earliest.", options.ONLY_UPSERT),
        section("Formats", prose.FORMATS, formats),
        f"## Bytes\n\n{differences.BYTES}\n",
        section("Properties of clients", prose.PROPERTIES, PRODUCERS),
        f"## Tables of databases\n\n{prose.DATABASES}\n\n{prose.EQUAL}\n",
        section("Options of `jdbc`", "PostgreSQL alone.", options.OF_JDBC),
        section("SET", "", SETTINGS),
        _aggregates(),
        _functions(),
        _differences(),
    ]
    return "\n".join(parts)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


def _other_formats() -> Sequence[Key]:
    return [Key(name, "refused", says) for name, says in options.OTHER_KINDS.items()]


def _differences() -> str:
    rows = _table(("Where", "Flink", "Here"), differences.DIFFERENCES)
    parts = (differences.MEASURED, rows, differences.ONE_SIDED)
    return "\n\n".join(("## Where answers differ from Flink's", *parts)) + "\n"


def _aggregates() -> str:
    rows = [(f"`{one.usage}`", escape(one.says)) for one in AGGREGATES.values()]
    head = f"## Aggregates\n\n{_AGGREGATES}\n"
    return f"{head}\n{_table(('Aggregate', 'Result'), rows)}\n"


def _functions() -> str:
    groups = dict.fromkeys(one.group for one in FUNCTIONS.values())
    head = f"## Functions\n\n{_FUNCTIONS}\n"
    also = ", ".join(f"`{one}`" for one in sorted((*ALIASES, *PARTS)))
    return "\n".join([head, *map(_group, groups), f"Other names of functions above: {also}.\n"])


def _group(group: str) -> str:
    rows = [
        f"| `{_cell(one.usage)}` | {escape(one.says)} | {'<br>'.join(_examples(one.examples))} |"
        for one in FUNCTIONS.values()
        if one.group == group
    ]
    head = ["| Function | Meaning | Results |", "|---|---|---|"]
    return "\n".join([f"### {group}", "", *head, *rows, ""])


def _examples(examples: Iterable[tuple[str, str | None]]) -> Iterable[str]:
    for sql, result in examples:
        shown = "null" if result is None else f"`{_cell(result)}`"
        yield f"`{_cell(sql)}` is {shown}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
