"""Reads what JustOne's connector has stored: a table of next offsets for each target.

The connector writes it in the transaction that moves its rows, where its delivery is synchronized.
While it runs so, each of its tasks has a temporary table of the target's name.
"""

from __future__ import annotations

from collections.abc import Mapping

from dataflow_assets.connectors.postgresql.client import TextLink, qualified_name, version_name
from dataflow_assets.errors import PermanentError, TransientError

SCHEMA = "$justone$kafka$connect$sink"
LEAST = 140_000  # the server's version as a number

_THERE = "SELECT to_regclass($1::text) IS NOT NULL"
# Two tasks never store one partition, but a partition that moved between them may be there twice.
_OFFSETS = """
SELECT kafka_partition, max(kafka_offset) FROM {} WHERE kafka_topic = $1 GROUP BY kafka_partition
"""
_RUNNING = """
SELECT n.nspname, pg_get_userbyid(c.relowner)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, pg_class s
WHERE s.oid = $1::regclass AND c.relpersistence = 't' AND c.relname = lower($2)
  AND c.relnamespace <> pg_my_temp_schema()
  AND c.relowner IN (s.relowner, current_user::regrole)
  AND ARRAY(SELECT ROW(attname, atttypid) FROM pg_attribute
            WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped ORDER BY attnum)
    = ARRAY(SELECT ROW(attname, atttypid) FROM pg_attribute
            WHERE attrelid = $3::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum)
LIMIT 1
"""
"""A task's table has the target's columns, and is of the role that keeps the state, or ours."""


def offsets(link: TextLink, schema: str, table: str, topic: str) -> Mapping[int, int]:
    """The offset that comes next, by the partitions of a topic that the table knows.

    Raises TransientError while the connector still runs: it would store what is read here again.
    It is looked for before the offsets are read, so that these are its last ones, and behind that,
    so that a connector that somebody starts meanwhile is not overlooked.
    """
    place = qualified_name(SCHEMA, f"{schema}.{table}")
    if not _there(link, place):
        return {}
    _check_stopped(link, schema, table, place)
    stored = stored_offsets(link, schema, table, topic)
    _check_stopped(link, schema, table, place)
    return stored


def stored_offsets(link: TextLink, schema: str, table: str, topic: str) -> Mapping[int, int]:
    """Reads the offsets as they are now, also while the connector runs: for people to look at."""
    place = qualified_name(SCHEMA, f"{schema}.{table}")
    return dict(link.execute(_OFFSETS.format(place), topic)) if _there(link, place) else {}


def _there(link: TextLink, place: str) -> bool:
    ((there,),) = link.execute(_THERE, place)
    return bool(there)


def _check_stopped(link: TextLink, schema: str, table: str, place: str) -> None:
    target = qualified_name(schema, table)
    if _there(link, target) and (running := link.execute(_RUNNING, place, table, target)):
        where, owner = running[0]
        raise TransientError(
            f"JustOne's connector still writes to {schema}.{table} (its temporary table is in "
            f"{where}, of the role {owner}): stop the connector; this flow then begins where it "
            "has stopped"
        )


def check_version(link: TextLink, where: str) -> None:
    """Raises PermanentError for a server that lacks what the sink needs."""
    if link.version < LEAST:
        raise PermanentError(
            f"{where}: the server is PostgreSQL {version_name(link.version)}, and 14 is the oldest "
            "that is supported: a run ends sessions of its predecessor with a time limit, which "
            "older servers do not have"
        )
