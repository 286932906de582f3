"""Maintenance on the real catalog: what is needed stays, whatever else happens meanwhile."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from dataflow_assets.connectors.iceberg.client import connect
from dataflow_assets.connectors.iceberg.maintenance import upkeep
from dataflow_assets.connectors.iceberg.maintenance.expire import expire
from dataflow_assets.connectors.iceberg.maintenance.maintain import maintain
from dataflow_assets.connectors.iceberg.rejected.table import identifier
from dataflow_assets.connectors.iceberg.sink.sink import IcebergSink
from dataflow_assets.contracts import Entry, Rejection, SinkSession, utc_now
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.maintenance import Keep, Tidied
from tests.connectors.iceberg.driver import (
    SOURCE,
    MakeSink,
    expected,
    ids,
    opened,
    pump,
    rows,
    span_of,
    stage,
    table_rows,
    write,
)

UUID = "00000000-0000-4000-8000-000000000000"
TIGHT = Keep(snapshots=2, days=1, orphan_days=3)


def tidy(sink: IcebergSink, days: float, keep: Keep = TIGHT) -> Tidied:
    """As if so many days had gone by."""
    return maintain(sink, keep, now=utc_now() + timedelta(days=days))[0]


def table(catalog: Catalog, namespace: str) -> Table:
    return catalog.load_table((namespace, "orders"))


def plant(found: Table, name: str, folder: str = "data") -> str:
    path = f"{found.location()}/{folder}/{name}"
    with found.io.new_output(path).create() as stream:
        stream.write(b"left behind")
    return path


def there(found: Table, path: str) -> bool:
    return found.io.new_input(path).exists()


def test_snapshots_expire_and_a_running_flow_goes_on(
    make: MakeSink, catalog: Catalog, namespace: str
) -> None:
    sink = make()
    session = opened(sink)
    for start in range(0, 50, 10):
        pump(sink, session, start, 10)
    before = len(table(catalog, namespace).snapshots())
    assert tidy(sink, 0).snapshots == 0
    assert tidy(sink, 2).snapshots == before - 2
    assert len(table(catalog, namespace).snapshots()) == 2
    pump(sink, session, 50, 10)
    assert ids(catalog, namespace) == expected(60)
    after = opened(sink)
    assert after.checkpoint.positions == {"p0": 60, "p1": 60}
    assert after.checkpoint.totals.rows == 120
    pump(sink, after, 60, 10)
    assert ids(catalog, namespace) == expected(70)


def test_what_was_current_within_the_last_day_stays_however_old_it_is(
    make: MakeSink, catalog: Catalog, namespace: str
) -> None:
    sink = make()
    session = opened(sink)
    pump(sink, session, 0, 10)
    known = table(catalog, namespace)
    head = known.metadata.current_snapshot_id
    assert tidy(sink, 2, Keep(snapshots=1)).snapshots == len(known.snapshots()) - 1
    assert table(catalog, namespace).metadata.current_snapshot_id == head


def test_the_tables_own_wishes_count_and_so_do_tags(
    make: MakeSink, catalog: Catalog, namespace: str
) -> None:
    sink = make()
    session = opened(sink)
    for start in range(0, 50, 10):
        pump(sink, session, start, 10)
    known = table(catalog, namespace)
    oldest = known.metadata.snapshots[0].snapshot_id
    known.manage_snapshots().create_tag(oldest, "audit").commit()
    with known.transaction() as change:
        change.set_properties({"history.expire.min-snapshots-to-keep": "4"})
    tidy(sink, 2)
    left = {snapshot.snapshot_id for snapshot in table(catalog, namespace).snapshots()}
    assert len(left) == 5
    assert oldest in left


def test_orphans_go_and_what_a_snapshot_lists_stays(
    make: MakeSink, catalog: Catalog, namespace: str
) -> None:
    sink = make()
    session = opened(sink)
    pump(sink, session, 0, 10)
    failed = session.begin(span_of(10, 10))
    stage(sink, session, failed)  # as tasks of a driver that died
    found = table(catalog, namespace)
    ours = [
        plant(found, f"0123abcd-7-p0-{UUID}.parquet"),
        plant(found, f"frame-{UUID}.parquet"),
        plant(found, f"00000-12-{UUID}.parquet"),
        plant(found, f"merged-{UUID}.parquet"),
        plant(found, f"0123abcd-7-p0-merge-{UUID}.parquet"),
        plant(found, f"{UUID}-m0.avro", "metadata"),
        plant(found, f"snap-1-0-{UUID}.avro", "metadata"),
    ]
    others = [
        plant(found, "00000-0-spark.parquet"),
        plant(found, f"00000-0-{UUID}-00001.parquet"),
        plant(found, f"00099-{UUID}.metadata.json", "metadata"),
    ]
    assert tidy(sink, 2).files == 0
    done = tidy(sink, 4, Keep())
    assert done.files == len(ours) + 2
    assert done.bytes > 0
    assert not any(there(found, path) for path in ours)
    assert all(there(found, path) for path in others)
    assert ids(catalog, namespace) == expected(10)
    pump(sink, session, 10, 10)
    assert ids(catalog, namespace) == expected(20)


def test_files_of_an_expired_snapshot_go_a_round_later(
    make: MakeSink, catalog: Catalog, namespace: str
) -> None:
    sink = make()
    session = opened(sink)
    pump(sink, session, 0, 10)
    old = [task.file.file_path for task in table(catalog, namespace).scan().plan_files()]
    session.restart({"p0": 0, "p1": 0}, "topic-1", empty=True)
    pump(sink, session, 0, 5)
    first = tidy(sink, 4, Keep(snapshots=1))
    found = table(catalog, namespace)
    assert (first.files, len(found.snapshots())) == (0, 1)
    assert all(there(found, path) for path in old)
    assert tidy(sink, 4, Keep(snapshots=1)).files > 2
    assert not any(there(found, path) for path in old)
    assert ids(catalog, namespace) == expected(5)


def test_a_flow_that_commits_meanwhile_loses_nothing(
    make: MakeSink, catalog: Catalog, namespace: str
) -> None:
    sink = make()
    session = opened(sink)
    over = threading.Event()
    removed: list[int] = []

    def again() -> None:
        while not over.is_set():
            found = connect(sink).load_table((namespace, "orders"))
            removed.append(expire(connect(sink), found, 1, utc_now() + timedelta(days=1)))

    thread = threading.Thread(target=again)
    thread.start()
    for start in range(0, 200, 10):
        pump(sink, session, start, 10)
    over.set()
    thread.join()
    assert sum(removed) > 5
    assert ids(catalog, namespace) == expected(200)
    assert opened(sink).checkpoint.positions == {"p0": 200, "p1": 200}


def test_the_table_of_rejected_records_is_tidied_too(
    make: MakeSink, catalog: Catalog, namespace: str
) -> None:
    sink = make()
    session = opened(sink)
    for start in (0, 10):
        span = session.begin(span_of(start, 10))
        bad = [Rejection(start, "decode", "no JSON", b"x")]
        piece = span.slices[0]
        session.finish(span, [write(sink, session, piece, rows(start + 1, 9), bad)], SOURCE)
    main, rejected = maintain(sink, Keep(snapshots=1), now=utc_now() + timedelta(days=2))
    assert main.table == f"{namespace}.orders"
    assert (rejected.table, rejected.snapshots) == (f"{namespace}.orders_rejected", 1)
    assert len(table_rows(catalog, namespace, "orders_rejected")) == 2


def test_files_that_replays_have_rewritten_go_once_nothing_lists_them(
    make: MakeSink, catalog: Catalog, namespace: str
) -> None:
    sink = make()
    session = opened(sink)
    _reject(sink, session, 0)
    first, second, *left = sorted(_rejected(catalog, namespace), key=lambda row: str(row["id"]))
    sink.rejected_entries().mark_replayed([_entry(first)])
    known = catalog.load_table(identifier(sink))
    (rewritten,) = (task.file.file_path for task in known.scan().plan_files())
    assert rewritten.rpartition("/")[2].startswith("00000-0-")
    sink.rejected_entries().mark_replayed([_entry(second)])
    _reject(sink, session, 10)  # until the next append the head names it, as deleted
    keep = Keep(snapshots=1)
    for days in (2, 4):  # after two days snapshots expire, but files are too young
        assert there(known, rewritten)
        maintain(sink, keep, now=utc_now() + timedelta(days=days))
    assert not there(known, rewritten)
    found = {one["id"] for one in _rejected(catalog, namespace)}
    assert found.issuperset(row["id"] for row in left)
    assert len(found) == len(left) + 4


def _reject(sink: IcebergSink, session: SinkSession, start: int) -> None:
    span = session.begin(span_of(start, 10))
    bad = [Rejection(start + n, "decode", "no JSON", b"x") for n in range(4)]
    receipt = write(sink, session, span.slices[0], rows(start + 4, 6), bad)
    session.finish(span, [receipt], SOURCE)


def _entry(row: dict[str, Any]) -> Entry:
    return Entry(row["id"], "main", "decode", 0, None, reading=row["reading"])


def _rejected(catalog: Catalog, namespace: str) -> list[dict[str, Any]]:
    return table_rows(catalog, namespace, "orders_rejected")


def test_a_table_that_somebody_else_tidies_is_left_alone(
    make: MakeSink, catalog: Catalog, namespace: str
) -> None:
    sink = make()
    pump(sink, opened(sink), 0, 10)
    with table(catalog, namespace).transaction() as change:
        change.set_properties({"gc.enabled": "false"})
    found = tidy(sink, 30)
    assert (found.snapshots, found.files) == (0, 0)
    assert "gc.enabled" in found.note


def test_a_table_that_is_not_there_is_no_error(make: MakeSink) -> None:
    assert maintain(make(), Keep()) == []


@pytest.mark.parametrize("wish", [{"snapshots": 0}, {"days": 0.01}, {"orphan_days": 0.5}])
def test_what_running_flows_need_cannot_be_given_up(wish: dict[str, float]) -> None:
    with pytest.raises(PermanentError, match="running flows need"):
        Keep(**wish)  # type: ignore[arg-type]


def test_a_flow_keeps_its_table_small_where_that_is_asked(
    make: MakeSink, catalog: Catalog, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a REST catalog, and beside another writer, which is nobody's business to name."""
    monkeypatch.setattr(IcebergSink, "snapshots_stay", timedelta(0))
    monkeypatch.setattr(upkeep, "EXPIRE_SECONDS", 0.0)
    sink = make(maintenance="auto")
    session = opened(sink)
    for number in range(18):
        pump(sink, session, number, 1)
    found = table(catalog, namespace)
    assert len(list(found.scan().plan_files())) < 20
    assert ids(catalog, namespace) == expected(18)
    assert len(found.snapshots()) < 2 * upkeep.SNAPSHOTS
    assert opened(sink).checkpoint.positions == {"p0": 18, "p1": 18}
