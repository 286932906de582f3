"""Statements, columns and windows of SQL files, for the page about them."""

from __future__ import annotations

from collections.abc import Sequence

STATEMENTS: Sequence[tuple[str, str, str]] = (
    (
        "`CREATE [TEMPORARY] TABLE [IF NOT EXISTS] t (...) WITH (...)`",
        "used",
        "a topic, or a table of a database",
    ),
    (
        "`... LIKE other [(INCLUDING, EXCLUDING, OVERWRITING ...)]`",
        "used",
        "whatever the statement leaves out is taken from the other table; options may be replaced",
    ),
    (
        "`CREATE [TEMPORARY] VIEW [IF NOT EXISTS] v [(columns)] AS SELECT`",
        "used",
        "a name for a query",
    ),
    (
        "`[EXECUTE] INSERT INTO t [(columns)] SELECT [UNION ALL SELECT]`",
        "used",
        (
            "a flow for each SELECT; columns that are not listed are null. Tables may be declared "
            "in another file of the folder"
        ),
    ),
    (
        "`... ON CONFLICT DO DEDUPLICATE`",
        "used",
        "accepted, because this is what happens anyway; `NOTHING` and `ERROR` are refused",
    ),
    (
        "`EXECUTE STATEMENT SET BEGIN ... END`, `BEGIN STATEMENT SET ... END`",
        "used",
        "accepted; each INSERT is a flow of its own",
    ),
    ("`SET 'key' = 'value'`", "used", "a setting for the statements below it: [all keys](#set)"),
    (
        "`INSERT INTO t WITH x [(columns)] AS (SELECT), ... SELECT`, also in `CREATE VIEW`",
        "used",
        "names for queries, in this statement alone",
    ),
    (
        (
            "`USE`, `SHOW`, `DESCRIBE`, `EXPLAIN`, `RESET`, `ADD JAR`, `CREATE DATABASE`, `CREATE "
            "CATALOG` of type `generic_in_memory`, `DROP` of a table, view, function, database or "
            "catalog"
        ),
        "note",
        "without effect",
    ),
    (
        (
            "`ALTER`, `DELETE`, `UPDATE`, `CREATE FUNCTION`, other catalogs, `AS SELECT`, `INSERT "
            "OVERWRITE`, `WITH` in front of a statement or in a subquery, hints"
        ),
        "refused",
        "a finding says what to do instead",
    ),
)


COLUMNS: Sequence[tuple[str, str]] = (
    ("`c TYPE [NOT NULL]`", "a field of the record; NOT NULL is checked when the table is written"),
    (
        "`c TYPE METADATA [FROM 'key'] [VIRTUAL]`",
        (
            "{metadata}, cast to TYPE, and [those of changes](#changes). Without VIRTUAL an INSERT "
            "writes the column into the message, which works for {writable}; deletes carry none of "
            "them"
        ),
    ),
    ("`c AS expression`", "a computed column: its value is computed when the table is read"),
    (
        "`WATERMARK FOR c AS expression`",
        "the time up to which rows are expected to have come; needed for [windows](#windows)",
    ),
    (
        "`PRIMARY KEY (a, b) NOT ENFORCED`",
        (
            "the key of `upsert-kafka`, with its columns in this order, and of "
            "[changes](#changes); in a table of a database, the key by which rows are upserted and "
            "deleted"
        ),
    ),
)


WINDOWS: Sequence[tuple[str, str]] = (
    (
        "`TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), size[, offset]))`",
        "windows of one size, one after the other",
    ),
    (
        "`TABLE(HOP(TABLE t, DESCRIPTOR(ts), slide, size[, offset]))`",
        "a window begins every `slide`",
    ),
    (
        "`TABLE(CUMULATE(TABLE t, DESCRIPTOR(ts), step, size[, offset]))`",
        "windows that begin together and end a `step` apart; the next ones begin after `size`",
    ),
)


UNNEST: Sequence[tuple[str, str]] = (
    ("`FROM t CROSS JOIN UNNEST(items) AS u (item)`", "a row for each item"),
    ("`FROM t, UNNEST(items) AS u (item)`", "the same"),
    ("`FROM t JOIN UNNEST(items) AS u (item) ON item > 0`", "those of which the condition holds"),
    (
        "`FROM t LEFT JOIN UNNEST(items) AS u (item) ON TRUE`",
        "a row without items stays, with nulls",
    ),
    ("`UNNEST(items) WITH ORDINALITY AS u (item, number)`", "with the number of the item"),
)
