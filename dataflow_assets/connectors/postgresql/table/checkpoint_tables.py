"""What is stored beside the rows: checkpoint, intent and rejected records, and their statements.

`dataflow_checkpoint` has one row per branch: who drives (epoch, run, host), identities, the intent
of a bounded read. `dataflow_checkpoint_partition` has one row per partition: what was consumed. A
writer locks its partition's row first and moves it in the transaction that stores the rows.
"""

from __future__ import annotations

import hashlib
import json

from dataflow_assets.connectors.postgresql.client import Link, lock_name, quote
from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure
from dataflow_assets.connectors.postgresql.table import durability
from dataflow_assets.contracts import (
    Target,
)
from dataflow_assets.errors import PermanentError

_TABLES = {
    "dataflow_checkpoint": """(
    flow text, branch text, epoch bigint NOT NULL, run text NOT NULL, host text NOT NULL,
    manifest text NOT NULL DEFAULT '', source text, target text, intent text,
    rows bigint NOT NULL DEFAULT 0, rejected bigint NOT NULL DEFAULT 0,
    bytes bigint NOT NULL DEFAULT 0, updated_at timestamptz NOT NULL DEFAULT now(),
    reading bigint NOT NULL DEFAULT 0, PRIMARY KEY (flow, branch))""",
    "dataflow_checkpoint_partition": """(
    flow text, branch text, partition text, epoch bigint NOT NULL, next_offset bigint, part text,
    rows bigint NOT NULL DEFAULT 0, rejected bigint NOT NULL DEFAULT 0,
    bytes bigint NOT NULL DEFAULT 0, committed_at timestamptz,
    PRIMARY KEY (flow, branch, partition))""",
    "dataflow_rejected": """(
    id text PRIMARY KEY, flow text NOT NULL, branch text NOT NULL, source text NOT NULL,
    partition text NOT NULL, "offset" bigint NOT NULL, n integer NOT NULL, stage text NOT NULL,
    reason text NOT NULL, body text, body_encoding text, key text, key_encoding text,
    rejected_at timestamptz NOT NULL DEFAULT now(), step integer, step_type text,
    replayed_at timestamptz, rows integer, reading bigint NOT NULL DEFAULT 0, metadata text)""",
}
_MISSING = """
SELECT to_regclass(place) IS NULL
FROM json_array_elements_text($1::json) WITH ORDINALITY AS asked (place, n) ORDER BY n
"""
_LATEST = """
SELECT count(*) FILTER (WHERE attname <> 'metadata') = 6,
    count(*) FILTER (WHERE attname = 'metadata') = 1
FROM pg_attribute WHERE attrelid = to_regclass($1::text)
AND attname IN ('step', 'step_type', 'replayed_at', 'rows', 'reading', 'metadata')
OR attrelid = to_regclass($2::text) AND attname = 'reading'
"""
_ADD_LATEST = (
    "ALTER TABLE {h} ADD COLUMN IF NOT EXISTS reading bigint NOT NULL DEFAULT 0",
    """ALTER TABLE {r} ADD COLUMN IF NOT EXISTS step integer,
    ADD COLUMN IF NOT EXISTS step_type text, ADD COLUMN IF NOT EXISTS replayed_at timestamptz,
    ADD COLUMN IF NOT EXISTS rows integer,
    ADD COLUMN IF NOT EXISTS reading bigint NOT NULL DEFAULT 0""",
)
_ADD_METADATA = "ALTER TABLE {r} ADD COLUMN IF NOT EXISTS metadata text"
# Links that wait have nobody's name, hold no lock and commit nothing any more: the epoch alone
# stops an older driver that asks for one.
_OLDER = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE $1 AND pid <> pg_backend_pid()
  AND state <> 'idle' AND pg_has_role(usesysid, 'USAGE')
"""
# One by one, each as it is at that moment: while one is waited for, another may have ended its
# transaction and work for a neighbour by now.
_END = """
SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity
WHERE pid = $2::integer AND application_name LIKE $1 AND state <> 'idle'
"""


def statements(schema: str) -> dict[str, str]:
    """The tables' quoted names by the placeholders of the statements here."""
    names = zip("hpr", _TABLES, strict=True)
    return {letter: f"{quote(schema)}.{quote(name)}" for letter, name in names}


def prepare(link: Link, schema: str) -> None:
    """Makes the tables where they are missing; drivers that race for it wait for each other.

    Raises PermanentError where one of them is unlogged.
    """
    durability.check_logged(link, statements(schema).values())
    is_current, has_metadata = _columns(link, schema)
    if missing(link, schema) or not is_current:
        _make(link, schema)
    elif not has_metadata:
        _add_metadata(link, schema)


def _make(link: Link, schema: str) -> None:
    link.execute("BEGIN")
    try:
        lock_name(link, schema)
        # All of them: the session may remember a table as missing that another has just made.
        for name, columns in _TABLES.items():
            link.execute(f"CREATE TABLE IF NOT EXISTS {quote(schema)}.{quote(name)} {columns}")
        is_current, has_metadata = _columns(link, schema)
        for statement in (
            () if is_current else _additions(schema)
        ):  # the table of an earlier version
            link.execute(statement)
        if not has_metadata:
            link.execute(_ADD_METADATA.format(**statements(schema)))
        link.execute("COMMIT")
    except PostgresqlFailure as failure:
        link.execute("ROLLBACK")
        raise _no_storage(failure, schema) from None


def missing(link: Link, schema: str) -> list[str]:
    """Which of our tables are not there."""
    places = json.dumps(list(statements(schema).values()))
    found = link.execute(_MISSING, places)
    return [name for name, (absent,) in zip(_TABLES, found, strict=True) if absent]


def _columns(link: Link, schema: str) -> tuple[bool, bool]:
    names = statements(schema)
    ((is_current, metadata),) = link.execute(_LATEST, names["r"], names["h"])
    return bool(is_current), bool(metadata)


def _add_metadata(link: Link, schema: str) -> None:
    """Only its owner may: without the column, rejected records are kept as earlier versions did."""
    try:
        link.execute(_ADD_METADATA.format(**statements(schema)))
    except PostgresqlFailure as failure:
        if failure.sqlstate != "42501":
            raise


def _additions(schema: str) -> list[str]:
    return [statement.format(**statements(schema)) for statement in _ADD_LATEST]


def _no_storage(failure: PostgresqlFailure, schema: str) -> Exception:
    if failure.sqlstate not in {"42501", "3F000", "42P16"}:
        return failure
    if failure.sqlstate == "42P16":
        return PermanentError(
            f"schema {schema} holds temporary tables, which end with the session that made them: "
            "name a table of another schema"
        )
    if failure.sqlstate == "3F000":
        return PermanentError(
            f"schema {schema} does not exist: correct table, or run: CREATE SCHEMA {quote(schema)}"
        )
    made = [f"CREATE TABLE IF NOT EXISTS {quote(schema)}.{n} {text}" for n, text in _TABLES.items()]
    ddl = "; ".join([*made, *_additions(schema)])
    return PermanentError(
        f"the checkpoint tables cannot be made in schema {schema}: {failure.reason}; let the role "
        f"create tables there, or run: {' '.join(ddl.split())}"
    )


def application(target: Target, epoch: int | None = None) -> str:
    """A transaction's name: flow and epoch; without one it only opens."""
    short = hashlib.sha256(target.id.encode()).hexdigest()[:12]
    return f"dataflow-open:{short}" if epoch is None else f"dataflow:{short}:{epoch}"


def end_older(link: Link, target: Target) -> None:
    """Ends the transactions of the branch's older drivers and tasks.

    Called on the driver when a session opens, so that nobody waits for their locks.
    """
    names = application(target, 0)[:-1] + "%"
    for (pid,) in link.execute(_OLDER, names):
        link.execute(_END, names, pid)
