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
        "what is not said is taken over, options may be replaced",
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
            "a flow, of each SELECT; columns that are not listed are null. Tables may be declared "
            "in another file of the folder"
        ),
    ),
    (
        "`... ON CONFLICT DO DEDUPLICATE`",
        "used",
        "what happens anyway; `NOTHING` and `ERROR` are refused",
    ),
    (
        "`EXECUTE STATEMENT SET BEGIN ... END`, `BEGIN STATEMENT SET ... END`",
        "used",
        "each INSERT is a flow of its own all the same",
    ),
    ("`SET 'key' = 'value'`", "used", "of the statements behind it; see below"),
    ("`USE`, `SHOW`, `DESCRIBE`, `EXPLAIN`, `RESET`, `ADD JAR`", "note", "without effect"),
    (
        (
            "`DROP`, `ALTER`, `DELETE`, `UPDATE`, `CREATE FUNCTION`, `CREATE CATALOG`, `AS "
            "SELECT`, `INSERT OVERWRITE`, `WITH` in front of a query, hints"
        ),
        "refused",
        "a finding says what to do instead",
    ),
)


COLUMNS: Sequence[tuple[str, str]] = (
    ("`c TYPE [NOT NULL]`", "a field of the record; NOT NULL is held where the table is written"),
    (
        "`c TYPE METADATA [FROM 'key'] [VIRTUAL]`",
        (
            "{metadata}, cast to TYPE; other keys are refused. Without VIRTUAL an INSERT fills the "
            "column: {writable}; a delete has none of them"
        ),
    ),
    ("`c AS expression`", "computed where the table is read"),
    (
        "`WATERMARK FOR c AS expression`",
        "how far the time of rows has come, for [windows](#windows)",
    ),
    (
        "`PRIMARY KEY (a, b) NOT ENFORCED`",
        (
            "the key of `upsert-kafka`, in this order; the key of a table of a database, whose "
            "rows are then upserted and deleted"
        ),
    ),
)


WINDOWS: Sequence[tuple[str, str]] = (
    ("`TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), size[, offset]))`", "one after the other"),
    ("`TABLE(HOP(TABLE t, DESCRIPTOR(ts), slide, size[, offset]))`", "one begins every `slide`"),
    (
        "`TABLE(CUMULATE(TABLE t, DESCRIPTOR(ts), step, size[, offset]))`",
        "one ends every `step`, and all begin again every `size`",
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
