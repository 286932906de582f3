"""Pipelines that open at the same moment, in a schema that has nothing of theirs yet."""

from __future__ import annotations

import threading
import time
from contextlib import closing

import psycopg

import devservers
from dataflow_assets.connectors.postgresql.client import TextLink
from dataflow_assets.languages.pipelines.postgresql import functions

_WAITS = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"


def test_pipelines_that_open_at_once_make_their_functions_one_after_the_other(
    postgresql: devservers.PostgreSQL, schema: str
) -> None:
    failures: list[Exception] = []
    with (
        closing(TextLink(postgresql.dsn(), "first")) as first,
        closing(TextLink(postgresql.dsn(), "second")) as second,
        psycopg.connect(postgresql.dsn(), autocommit=True) as watching,
    ):
        ((pid,),) = second.execute("SELECT pg_backend_pid()")

        def open_second() -> None:
            try:
                second.execute("BEGIN")
                functions.prepare(second, schema)
                second.execute("COMMIT")
            except Exception as error:  # noqa: BLE001 - looked at by the test
                failures.append(error)

        first.execute("BEGIN")
        functions.prepare(first, schema)
        opening = threading.Thread(target=open_second)
        opening.start()
        while not watching.execute(_WAITS, [pid]).fetchall():
            time.sleep(0.01)
        first.execute("COMMIT")
        opening.join()
    assert failures == []
