"""What the source reads: the history of a branch, which the Iceberg REST catalog does not show."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyarrow as pa
import pytest
import requests
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table
from typing_extensions import override

import devservers
from dataflow_assets.connectors.iceberg import NessieSource
from dataflow_assets.connectors.iceberg.client import NessieCatalog, connect
from dataflow_assets.connectors.iceberg.source import nessie_history
from dataflow_assets.contracts import Limit, system_name
from dataflow_assets.errors import PermanentError
from tests.connectors.iceberg.source_driver import SCHEMA, ids, parts, read, rows, spans, stands
from tests.connectors.nessie.driver import Trees, make_source

pytestmark = pytest.mark.heavy


class Events:
    """A table on a branch of its own, which starts at a branch that has an empty table."""

    def __init__(self, nessie: devservers.Nessie, namespace: str) -> None:
        self.nessie, self.namespace = nessie, namespace
        self.trees, self.made = Trees(nessie), 0
        self.branch = self.fork("main")
        self.on(self.branch).create_table((namespace, "events"), SCHEMA)

    def fork(self, of: str) -> str:
        name = f"b_{uuid.uuid4().hex[:8]}"
        self.trees.make(name, of=of)
        return name

    def on(self, branch: str) -> Catalog:
        return load_catalog("nessie", **self.nessie.catalog_properties(branch))

    def table(self, branch: str = "") -> Table:
        return self.on(branch or self.branch).load_table((self.namespace, "events"))

    def append(self, count: int, branch: str = "") -> None:
        """One snapshot with the next numbers."""
        self.table(branch).append(rows(self.made, self.made + count))
        self.made += count

    def source(self, **changes: Any) -> NessieSource:
        here = {"branch": self.branch, "incrementalBySnapshot": True}
        return make_source(self.nessie, self.namespace, **{**here, **changes})


@pytest.fixture
def events(nessie: devservers.Nessie, nessie_namespace: str) -> Events:
    nessie_history._snapshots.clear()
    return Events(nessie, nessie_namespace)


def test_the_current_snapshot_once_and_then_what_is_appended(events: Events) -> None:
    events.append(3)
    events.append(2)
    found, after = read(events.source())
    assert ids(found) == [0, 1, 2, 3, 4]
    assert read(events.source(), after) == ([], after)
    for count in (1, 2, 3):
        events.append(count)
    assert len(events.table().snapshots()) == 1, "then this module would not be needed"
    found, after = read(events.source(), after)
    assert ids(found) == [5, 6, 7, 8, 9, 10]
    assert read(events.source(), after)[0] == []


@pytest.mark.full
def test_each_row_tells_the_snapshot_that_added_it(events: Events) -> None:
    events.append(1)
    after = read(events.source())[1]
    wanted = []
    for _ in range(2):
        events.append(2)
        snapshot = events.table().current_snapshot()
        assert snapshot is not None
        wanted += [(snapshot.snapshot_id, snapshot.sequence_number)] * 2
    keys = frozenset({"snapshot_id", "snapshot_sequence"})
    source = events.source()
    found = [
        (row[system_name("snapshot_id")], row[system_name("snapshot_sequence")])
        for span, _ in spans(source, after)
        for part in parts(source, span, keys)
        for row in part
    ]
    assert found == wanted


def test_a_position_inside_a_snapshot(events: Events) -> None:
    """Each poll reads three rows, of snapshots that are no longer the current one."""
    source = events.source(maxRowsPerPoll=3)
    events.append(1)
    after = read(source)[1]
    events.append(7)
    events.append(4)
    found: list[int] = []
    inside = 0
    for span, reached in spans(source, after):
        assert sum(len(part) for part in parts(source, span)) <= 3
        found += [number for part in parts(source, span) for number in ids(part)]
        inside += stands(reached).scan is not None
        with closing(source.open("default/f")) as again:  # another process goes on
            assert not again.lags("table", reached["table"], reached["table"])
    assert found == list(range(1, 12))
    assert inside >= 2


def test_commits_that_change_properties_only_are_no_snapshots(events: Events) -> None:
    events.append(1)
    after = read(events.source())[1]
    for number in range(3):
        events.append(1)
        with events.table().transaction() as change:
            change.set_properties({"number": str(number)})
    with closing(events.source().open("default/f")) as session:
        assert session.lag(after).records == 3
    found, after = read(events.source(), after)
    assert ids(found) == [1, 2, 3]
    with events.table().transaction() as change:
        change.set_properties({"number": "4"})
    assert read(events.source(), after)[0] == []


@pytest.mark.full
def test_the_history_is_longer_than_a_page(events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dataflow_assets.connectors.iceberg.client.PAGE", 3)
    events.append(1)
    after = read(events.source())[1]
    for _ in range(8):
        events.append(1)
    assert ids(read(events.source(), after)[0]) == list(range(1, 9))


def test_a_session_asks_for_what_is_new_only(
    events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    events.append(1)
    with closing(events.source().open("default/f")) as session:
        after = session.end()
        for _ in range(4):
            events.append(1)
        assert session.lag(after).records == 4
        asked: list[str] = []
        original = type(session._catalog)._ask  # type: ignore[attr-defined]

        def counted(catalog: Any, path: str, query: Any) -> Any:
            asked.append(path)
            return original(catalog, path, query)

        monkeypatch.setattr(type(session._catalog), "_ask", counted)  # type: ignore[attr-defined]
        assert session.lag(after).records == 4
        assert asked == []
        events.append(1)
        assert session.lag(after).records == 5
        assert len(asked) == 2, asked  # the log, and the new snapshot


@pytest.mark.full
def test_start_behind_a_snapshot(events: Events) -> None:
    events.append(2)
    first = events.table().current_snapshot()
    events.append(2)
    events.append(2)
    assert first is not None
    found, _ = read(events.source(startSnapshotID=str(first.snapshot_id)))
    assert ids(found) == [2, 3, 4, 5]
    with pytest.raises(PermanentError, match="snapshot 7 is not in the table's history"):
        read(events.source(startSnapshotID="7"))


@pytest.mark.full
def test_seek_by_time(events: Events) -> None:
    events.append(1)
    events.append(1)
    second = events.table().current_snapshot()
    events.append(1)
    assert second is not None
    with closing(events.source().open("default/f")) as session:
        at = pa.scalar(second.timestamp_ms, pa.timestamp("ms", "UTC")).as_py().isoformat()
        after = session.start(at)
    assert ids(read(events.source(), after)[0]) == [1, 2]


def test_a_merge_is_one_snapshot(events: Events) -> None:
    events.append(2)
    after = read(events.source())[1]
    work = events.fork(events.branch)
    for _ in range(3):
        events.append(2, work)
    assert read(events.source(), after)[0] == []
    events.trees.merge(work, events.branch)
    found, after = read(events.source(maxRowsPerPoll=4), after)
    assert ids(found) == [2, 3, 4, 5, 6, 7]
    events.append(1)
    assert ids(read(events.source(), after)[0]) == [8]


def test_a_merge_is_read_whole_by_a_run_that_begins_in_its_middle(events: Events) -> None:
    """What it added is found by comparing it with the snapshot before, by each session anew."""
    events.append(2)
    after = read(events.source())[1]
    work = events.fork(events.branch)
    for _ in range(3):
        events.append(2, work)
    events.trees.merge(work, events.branch)
    found: list[int] = []
    source = events.source(maxRowsPerPoll=1)
    for _ in range(8):
        nessie_history._snapshots.clear()
        with closing(source.open("default/f")) as session:
            left = session.lag(after).records
            span = session.plan(after, Limit())
            reached = session.fold({one.partition: one.upto for one in span.slices})
        assert left is not None
        if span.slices:
            found += [number for part in parts(source, span) for number in ids(part)]
            after = reached
    assert found == [2, 3, 4, 5, 6, 7]


def test_a_merge_that_takes_rows_away_follows_the_rule(events: Events) -> None:
    events.append(4)
    after = read(events.source())[1]
    work = events.fork(events.branch)
    events.append(2, work)
    events.table(work).delete("id = 1")
    events.trees.merge(work, events.branch)
    with pytest.raises(PermanentError, match="took away or replaced 4 rows in 1 files and added"):
        read(events.source(), after)
    found, _ = read(events.source(onSourceRewrite="rescan"), after)
    assert sorted(ids(found)) == [0, 2, 3, 4, 5]
    assert read(events.source(onSourceRewrite="ignore"), after)[0] == []


def test_a_branch_that_was_moved_back(events: Events) -> None:
    events.append(1)
    head = events.trees.head(events.branch)
    events.append(1)
    after = read(events.source())[1]
    events.trees.assign(events.branch, head)
    events.append(1)
    with pytest.raises(PermanentError, match="are no longer known, nor which rows they added"):
        read(events.source(), after)


@pytest.mark.full
def test_a_branch_that_is_moved_back_under_an_open_session(events: Events) -> None:
    events.append(1)
    head = events.trees.head(events.branch)
    events.append(1)
    events.append(1)
    with closing(events.source().open("default/f")) as session:
        assert session.lag(session.start()).records == 3
        after = session.end()
        events.trees.assign(events.branch, head)
        with pytest.raises(PermanentError, match="its branch was moved or created again"):
            session.plan(after, Limit())


@pytest.mark.parametrize("ahead", [1, 2])
def test_a_forced_merge_of_a_table_that_both_branches_changed(events: Events, ahead: int) -> None:
    """Its snapshots have the numbers of those that they replace, and the ones after these."""
    events.append(1)
    work = events.fork(events.branch)
    events.append(1)
    after = read(events.source())[1]
    for _ in range(ahead):
        events.append(1, work)
    events.trees.merge(work, events.branch, "FORCE")
    with pytest.raises(PermanentError, match="took away or replaced 1 rows in 1 files and added"):
        read(events.source(), after)
    found, _ = read(events.source(onSourceRewrite="rescan"), after)
    assert sorted(ids(found)) == [0, *range(2, 2 + ahead)]


def test_a_table_that_was_put_back(events: Events) -> None:
    """From what is undone the rule leads on; who was not there yet reads what is left."""
    events.append(1)
    first = read(events.source())[1]
    events.append(1)
    then = events.trees.head(events.branch)
    events.append(1)
    undone = read(events.source())[1]
    events.trees.put_back(events.branch, (events.namespace, "events"), then)
    events.append(1)
    assert ids(read(events.source(), first)[0]) == [1, 3]
    with pytest.raises(PermanentError, match="took away or replaced 1 rows in 1 files and added 0"):
        read(events.source(), undone)
    assert ids(read(events.source(onSourceRewrite="ignore"), undone)[0]) == [3]
    with closing(events.source().open("default/f")) as session:
        assert stands(session.start("2020-01-01T00:00:00Z")).snapshot is None


def test_a_snapshot_that_was_put_back_while_it_was_read(events: Events) -> None:
    """Which files it added is told by where it came first."""
    events.append(1)
    source = events.source(maxRowsPerPoll=2)
    with closing(source.open("default/f")) as session:
        after = session.end()
        events.append(6)
        then = events.trees.head(events.branch)
        span = session.plan(after, Limit())
        inside = session.fold({piece.partition: piece.upto for piece in span.slices})
    assert [number for part in parts(source, span) for number in ids(part)] == [1, 2]
    events.append(1)
    events.trees.put_back(events.branch, (events.namespace, "events"), then)
    nessie_history._snapshots.clear()
    events.append(1)
    assert ids(read(source, inside)[0]) == [3, 4, 5, 6, 8]


def test_a_tag_is_read_once(events: Events) -> None:
    events.append(3)
    tag = f"t_{uuid.uuid4().hex[:8]}"
    events.trees.make(tag, "TAG", of=events.branch)
    events.append(3)
    source = events.source(branch=tag)
    found, after = read(source)
    assert ids(found) == [0, 1, 2]
    assert read(source, after) == ([], after)


def test_a_branch_that_is_not_there(events: Events) -> None:
    with pytest.raises(PermanentError, match=r"nowhere.*check baseURL, branch, warehouse and n"):
        events.source(branch="nowhere").open("default/f")


def test_a_branch_that_is_deleted_meanwhile(events: Events) -> None:
    """The table is not what is missing."""
    events.append(1)
    catalog = connect(events.source())
    assert isinstance(catalog, NessieCatalog)
    events.trees.delete(events.branch)
    with pytest.raises(PermanentError, match=f"branch or tag {events.branch} is gone, or Nessie's"):
        next(catalog.commits((events.namespace, "events")))


@pytest.fixture
def ingress(nessie: devservers.Nessie) -> Iterator[str]:
    """An address behind which is the Iceberg REST interface of Nessie, and nothing else."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = 404, b"no such page"
            if self.path.startswith("/iceberg/"):
                answer = requests.get(f"{nessie.uri}{self.path}", timeout=30)
                status, body = answer.status_code, answer.content
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        @override
        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_an_address_behind_which_only_the_catalog_is(events: Events, ingress: str) -> None:
    """Both ends say so: the sink where a table has no snapshot yet, the source where it goes on."""
    said = r"HTTP status 404 for /api/v2/trees.*must pass on /api/v2 as well as /iceberg"
    source = events.source(baseURL=ingress)
    catalog = connect(source)
    with pytest.raises(PermanentError, match=said):
        catalog.begin(catalog.load_table((events.namespace, "events")))
    events.append(1)
    after = read(source)[1]
    events.append(1)
    with pytest.raises(PermanentError, match=said):
        read(source, after)


def test_a_warehouse_that_is_not_there(events: Events) -> None:
    """Nessie answers with a failure of its own, which would be tried again and again."""
    with pytest.raises(PermanentError, match=r"'nowhere' is not known; check baseURL, branch, war"):
        events.source(warehouse="nowhere").open("default/f")


@pytest.mark.full
def test_small_spans_of_many_snapshots(events: Events) -> None:
    events.append(1)
    after = read(events.source())[1]
    for _ in range(6):
        events.append(5)
    found, _ = read(events.source(), after, Limit(records=7))
    assert ids(found) == list(range(1, 31))


def test_seek_by_time_finds_what_was_merged_later(events: Events) -> None:
    """The merge decides, and not when the snapshots were written on their own branch."""
    events.append(1)
    work = events.fork(events.branch)
    events.append(2, work)
    events.append(1, work)
    between = datetime.now(UTC)
    events.trees.merge(work, events.branch)
    with events.table().transaction() as change:  # a later commit with the same snapshot
        change.set_properties({"number": "1"})
    merged = datetime.now(UTC)
    events.append(1)
    with closing(events.source().open("default/f")) as session:
        after = session.start(between.isoformat())
        later = session.start(merged.isoformat())
    assert ids(read(events.source(), after)[0]) == [1, 2, 3, 4]
    assert ids(read(events.source(), later)[0]) == [4]
