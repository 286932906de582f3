"""What a lane has left in Dagster's storage when its process was killed, as text and back again."""

from __future__ import annotations

import json
import socket
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import dagster as dg

from dataflow_assets.connectors.memory import Store
from tests.stored.databases import fill, rows_of
from tests.stored.registry import GOES_ON, LEAVES, asset
from tests.stored.stores import hidden, shown

ROWS = [b'{"id": 1, "name": "a"}', b'{"id": 2, "name": "b"}']
MORE = b'{"id": 3, "name": "c"}'


def seed(store: Store) -> None:
    """The topics of both flows."""
    store.produce(GOES_ON, 0, ROWS)
    store.produce(LEAVES, 0, [b"no json"])


def dump(home: Path, instance: dg.DagsterInstance, store: Store) -> str:
    """The values under our keys, the tags of the run, and the newest event of an asset."""
    with closing(sqlite3.connect(home / "history" / "runs.db")) as runs:
        values = dict(runs.execute("SELECT key, value FROM kvs WHERE key LIKE 'dataflow/%'"))
    (record,) = instance.get_run_records()
    event = instance.get_latest_materialization_event(asset(store))
    assert event
    assert event.asset_materialization
    found = {
        "values": values,
        "host": socket.gethostname(),
        "run": {"id": record.dagster_run.run_id, "tags": dict(record.dagster_run.tags)},
        "event": dg.serialize_value(event.asset_materialization),
        "checkpoints": rows_of(store, "checkpoints"),
        "rows": rows_of(store, "rows"),
    }
    return hidden(json.dumps(found, indent=1) + "\n", {"store": store.name})


def load(text: str, instance: dg.DagsterInstance, store: Store) -> str:
    """Stores it again, and says which run drove the lane."""
    found = json.loads(shown(text, {"store": store.name}))
    instance.daemon_cursor_storage.set_cursor_values(found["values"])
    for table in ("checkpoints", "rows"):
        fill(store, table, found[table])
    return _run(found, instance)


def _run(found: Any, instance: dg.DagsterInstance) -> str:
    """As if it had run on this host, so that anybody can see that its process is gone."""
    here = f" {socket.gethostname()} "
    was = f" {found['host']} "
    tags = {name: value.replace(was, here) for name, value in found["run"]["tags"].items()}
    status = dg.DagsterRunStatus.STARTED
    run = dg.DagsterRun("ingest", found["run"]["id"], status=status, tags=tags)
    instance.add_run(run)
    event = dg.deserialize_value(found["event"], dg.AssetMaterialization)
    instance.report_runless_asset_event(event)
    return run.run_id
