"""A table that was rolled back to an older snapshot: what the checkpoint counts is not in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from dataflow_assets.connectors.memory import Store
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.flow import Flow
from dataflow_assets.manifests.load import load
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Patience, Request, Start
from dataflow_assets.testing import choose
from tests.connectors.iceberg.driver import MakeSink, opened, pump
from tests.connectors.iceberg.system import Iceberg
from tests.flows import manifest, messages


class Filled:
    """A flow from a topic in memory into a table of Iceberg."""

    def __init__(
        self, request: pytest.FixtureRequest, folder: Path, engine: SparkSession, *, upserts: bool
    ) -> None:
        self.store: Store = request.getfixturevalue("store")
        self.engine = engine
        system = Iceberg(request)
        more = Iceberg.upsert if upserts else {}
        config = system.at("sink", {"autoCreateTable": True, **(more or {})})
        self.catalog, self.place = system.catalog, (config["namespace"], config["table"])
        file = manifest(folder, messages(self.store), ("iceberg", config))
        self.flow: Flow = choose(load(file), None)

    def send(self, *ids: int, start: Start | None = None) -> None:
        """Sends records, and runs the flow."""
        bodies = [json.dumps({"id": one, "name": f"n{one}"}).encode() for one in ids]
        self.store.produce("t", 0, bodies)
        request = Request(start=start or Start(), patience=Patience(0, 0.05, 0.2))
        list(drain(self.flow, lambda: self.engine, request))

    @property
    def table(self) -> Table:
        found: Table = self.catalog.load_table(self.place)
        return found

    @property
    def ids(self) -> list[int]:
        return sorted(self.table.scan().to_arrow().column("id").to_pylist())

    def roll_back(self, to: Sequence[int]) -> None:
        """Takes out what was stored since the last snapshot that had these rows."""
        table = self.table
        found = [
            one.snapshot_id
            for one in table.snapshots()
            if sorted(table.scan(snapshot_id=one.snapshot_id).to_arrow().column("id").to_pylist())
            == [*to]
        ]
        table.manage_snapshots().rollback_to_snapshot(found[-1]).commit()
        assert self.ids == [*to]


@pytest.fixture(params=[False, True], ids=["append", "upsert"])
def filled(request: pytest.FixtureRequest, tmp_path: Path, engine: SparkSession) -> Filled:
    """With rows 1 and 2, rolled back to row 1."""
    flow = Filled(request, tmp_path, engine, upserts=request.param)
    flow.send(1)
    flow.send(2)
    flow.roll_back([1])
    return flow


def test_the_flow_stops_until_a_person_has_said_what_the_rows_are(filled: Filled) -> None:
    for number in (3, 4):  # what is not decided stays undecided
        with pytest.raises(PermanentError) as caught:
            filled.send(number)
        assert "was rolled back to a snapshot before the flow's last commit" in str(caught.value)
        assert "--table adopt" in str(caught.value)
        assert "--from earliest --table truncate" in str(caught.value)
    assert filled.ids == [1]


def test_a_person_goes_on_from_the_checkpoint(filled: Filled) -> None:
    filled.send(3, start=Start(table="adopt"))
    filled.send(4)
    assert filled.ids == [1, 3, 4]


def test_a_person_begins_again(filled: Filled) -> None:
    filled.send(3, start=Start("earliest", table="truncate"))
    filled.send(4)
    assert filled.ids == [1, 2, 3, 4]


def test_commits_of_others_behind_it_hide_nothing(filled: Filled) -> None:
    other = pa.Table.from_pylist([{"id": 9, "name": "x"}], filled.table.schema().as_arrow())
    filled.table.append(other)
    with pytest.raises(PermanentError, match="was rolled back"):
        filled.send(3)
    assert filled.ids == [1, 9]


def test_snapshots_that_were_removed_hide_nothing(filled: Filled) -> None:
    kept = {ref.snapshot_id for ref in filled.table.metadata.refs.values()}
    gone = [s.snapshot_id for s in filled.table.snapshots() if s.snapshot_id not in kept]
    filled.table.maintenance.expire_snapshots().by_ids(gone).commit()
    assert len(filled.table.snapshots()) == 1
    with pytest.raises(PermanentError, match="was rolled back"):
        filled.send(3)


def _appended(flow: Filled) -> None:
    row = pa.Table.from_pylist([{"id": 9, "name": "x"}], flow.table.schema().as_arrow())
    flow.table.append(row)


def _expired(flow: Filled) -> None:
    _appended(flow)
    _appended(flow)
    head = flow.table.current_snapshot()
    assert head is not None
    gone = [s.snapshot_id for s in flow.table.snapshots() if s.snapshot_id != head.snapshot_id]
    flow.table.maintenance.expire_snapshots().by_ids(gone).commit()
    assert len(flow.table.snapshots()) == 1


def _tagged(flow: Filled) -> None:
    first = flow.table.snapshots()[0].snapshot_id
    flow.table.manage_snapshots().create_tag(first, "first").commit()


def _known_to_an_earlier_version(flow: Filled) -> None:
    """Its checkpoint does not say what the last commit was."""
    (key,) = (one for one in flow.table.properties if one.startswith("dataflow.checkpoint."))
    kept = json.loads(flow.table.properties[key])
    del kept["stands"], kept["sequence"]
    with flow.table.transaction() as change:
        change.set_properties({key: json.dumps(kept)})


@pytest.mark.parametrize("harmless", [_appended, _expired, _tagged, _known_to_an_earlier_version])
def test_what_takes_no_row_out_stops_nothing(
    harmless: Callable[[Filled], None],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    engine: SparkSession,
) -> None:
    flow = Filled(request, tmp_path, engine, upserts=False)
    flow.send(1)
    harmless(flow)
    flow.send(2)
    flow.send(3)
    assert [one for one in flow.ids if one != 9] == [1, 2, 3]
    flow.roll_back([one for one in flow.ids if one != 3])
    with pytest.raises(PermanentError, match="was rolled back"):
        flow.send(4)


def test_nothing_is_committed_by_a_run_that_goes_on(
    make: MakeSink, catalog: Catalog, namespace: str
) -> None:
    session = opened(make())
    pump(make(), session, 0, 2)
    table = catalog.load_table((namespace, "orders"))
    before = table.snapshots()[0].snapshot_id
    pump(make(), session, 2, 2)
    catalog.load_table((namespace, "orders")).manage_snapshots().rollback_to_snapshot(
        before
    ).commit()
    with pytest.raises(TransientError, match="was rolled back to an older snapshot"):
        pump(make(), session, 4, 2)
    assert catalog.load_table((namespace, "orders")).scan().to_arrow().num_rows == 0
