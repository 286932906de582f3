"""The Iceberg source on a real REST catalog: every row of a table once, whatever is done to it."""

from __future__ import annotations

import json
import logging
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from dataflow_assets.contracts import Limit, system_name
from dataflow_assets.errors import PermanentError
from devservers import SeaweedFS
from tests.connectors.iceberg.source_driver import (
    MakeSource,
    ids,
    lake,
    make_source,
    make_table,
    parts,
    read,
    rows,
    spans,
    stands,
)


@pytest.fixture
def make(seaweedfs: SeaweedFS, namespace: str) -> MakeSource:
    return partial(make_source, seaweedfs, namespace)


def test_the_current_snapshot_once_and_then_what_is_appended(
    make: MakeSource, catalog: Catalog, namespace: str
) -> None:
    table = make_table(catalog, namespace)
    table.append(rows(0, 20))
    table.append(rows(20, 30))
    found, end = read(make())
    assert ids(found) == list(range(30))
    assert read(make(), end) == ([], end)
    table.append(rows(30, 35))
    table.append(rows(35, 40))
    more, later = read(make(), end)
    assert ids(more) == list(range(30, 40))
    assert stands(later).sequence == 4


def test_an_empty_table_has_nothing_until_it_has(
    make: MakeSource, catalog: Catalog, namespace: str
) -> None:
    table = make_table(catalog, namespace)
    found, end = read(make())
    assert (found, end) == ([], {"table": "{}"})
    table.append(rows(0, 3))
    assert ids(read(make(), end)[0]) == [0, 1, 2]


def test_a_position_is_inside_a_snapshot_and_parts_lie_side_by_side(
    make: MakeSource, catalog: Catalog, namespace: str
) -> None:
    table = make_table(catalog, namespace)
    table.append(rows(0, 20))
    table.append(rows(20, 40))
    source = make(parallelReads=2)
    found = [(parts(source, span), stands(after)) for span, after in spans(source, limit=Limit(7))]
    assert [[len(part) for part in each] for each, _ in found] == [[7, 7], [6, 7], [7, 6]]
    assert [each for both, _ in found for part in both for each in ids(part)] == list(range(40))
    assert [(at.scan, at.file, at.row, at.done) for _, at in found] == [
        ("full", 0, 14, 14),
        ("full", 1, 7, 27),
        (None, 0, 0, 0),
    ]


def test_a_long_file_is_cut_at_its_row_groups(
    make: MakeSource, catalog: Catalog, namespace: str
) -> None:
    table = make_table(catalog, namespace, **{"write.parquet.row-group-limit": "10"})
    table.append(rows(0, 100))
    source = make(parallelReads=3)
    found = [parts(source, span) for span, _ in spans(source, limit=Limit(25))]
    assert [[len(part) for part in each] for each in found] == [[20, 20, 20], [20, 20]]
    assert [row for each in found for part in each for row in ids(part)] == list(range(100))


def test_short_snapshots_share_a_part_in_their_order(
    make: MakeSource, catalog: Catalog, namespace: str
) -> None:
    """Later rows of a key come later."""
    table = make_table(catalog, namespace)
    table.append(rows(0, 1))
    _, end = read(make())
    for number in range(1, 5):
        table.append(rows(number, number + 1))
    ((span, _),) = spans(make(), end)
    (part,) = parts(make(), span)
    assert ids(part) == [1, 2, 3, 4]


def test_the_most_of_one_poll(make: MakeSource, catalog: Catalog, namespace: str) -> None:
    table = make_table(catalog, namespace)
    table.append(rows(0, 20))
    sizes = [[len(p) for p in parts(make(), span)] for span, _ in spans(make(maxRowsPerPoll=8))]
    assert sizes == [[8], [8], [4]]
    size = next(iter(table.inspect.files()["file_size_in_bytes"])).as_py()
    by_bytes = make(maxBytesPerPoll=size // 3)
    sizes = [[len(p) for p in parts(by_bytes, span)] for span, _ in spans(by_bytes)]
    assert sum(map(sum, sizes)) == 20
    assert sizes[:3] == [[6], [6], [6]]
    one_by_one = [parts(make(), span) for span, _ in spans(make(maxBytesPerPoll=1))]
    assert [len(part) for (part,) in one_by_one] == [1] * 20


def test_rows_carry_their_snapshot_where_snapshots_are_followed(
    make: MakeSource, catalog: Catalog, namespace: str
) -> None:
    table = make_table(catalog, namespace)
    table.append(rows(0, 1))
    source = make(incrementalBySnapshot=True)
    _, end = read(source)
    for number in (1, 2):
        table.append(rows(number, number + 1))
    ((span, _),) = spans(source, end)
    ((one, other),) = parts(source, span, frozenset({"snapshot_id", "snapshot_sequence"}))
    snapshots = [snapshot.snapshot_id for snapshot in table.snapshots()]
    named = [system_name("snapshot_id"), system_name("snapshot_sequence")]
    assert [one[name] for name in named] == [snapshots[1], 2]
    assert [other[name] for name in named] == [snapshots[2], 3]
    assert source.metadata(span.slices[0]) == {"namespace": namespace, "table": "events"}
    ((without, _),) = parts(make(), span, frozenset({"snapshot_id"}))
    assert set(without) == {"id", "name"}


def test_where_a_flow_begins_behind_a_snapshot(
    make: MakeSource, catalog: Catalog, namespace: str
) -> None:
    table = make_table(catalog, namespace)
    for number in range(3):
        table.append(rows(number, number + 1))
    first = str(table.snapshots()[0].snapshot_id)
    source = make(incrementalBySnapshot=True, startSnapshotID=first)
    assert ids(read(source)[0]) == [1, 2]
    unknown = make(incrementalBySnapshot=True, startSnapshotID="1")
    with pytest.raises(PermanentError, match=f"snapshot 1 is not in .* history: it knows {first}"):
        read(unknown)


def test_compaction_adds_nothing_and_deletes_in_files_are_applied(
    make: MakeSource,
    catalog: Catalog,
    namespace: str,
    spark: SparkSession,
    seaweedfs: SeaweedFS,
) -> None:
    table = make_table(catalog, namespace, **{"write.delete.mode": "merge-on-read"})
    table.append(rows(0, 20))
    table.append(rows(20, 40))
    name = lake(spark, seaweedfs)
    spark.sql(f"delete from {name}.{namespace}.events where id in (3, 25, 26)").collect()
    left = [number for number in range(40) if number not in (3, 25, 26)]
    assert table.refresh().current_snapshot().summary["added-position-deletes"] == "3"  # type: ignore[union-attr, index]
    found, end = read(make())
    assert ids(found) == left
    assert ids(read(make(parallelReads=3), None, Limit(7))[0]) == left
    which = f"table => '{namespace}.events', options => map('rewrite-all', 'true')"
    spark.sql(f"call {name}.system.rewrite_data_files({which})").collect()
    assert table.refresh().current_snapshot().summary.operation.value == "replace"  # type: ignore[union-attr]
    more, later = read(make(), end)
    assert more == []
    assert stands(later).snapshot == table.current_snapshot().snapshot_id  # type: ignore[union-attr]
    assert sorted(ids(read(make())[0])) == left


def test_a_rewrite_stops_the_flow_behind_everything_before_it(
    make: MakeSource, catalog: Catalog, namespace: str
) -> None:
    table = make_table(catalog, namespace)
    table.append(rows(0, 20))
    _, end = read(make())
    table.append(rows(20, 25))
    table.delete("id < 5")
    table.append(rows(25, 30))
    snapshot = table.snapshots()[-2]
    coming = spans(make(), end)
    span, end = next(coming)
    assert [ids(part) for part in parts(make(), span)] == [list(range(20, 25))]
    with pytest.raises(PermanentError) as caught:
        next(coming)
    assert f"snapshot {snapshot.snapshot_id} of 20" in str(caught.value)
    assert "(overwrite) took away or replaced 20 rows in 1 files and added 15" in str(caught.value)
    assert "onSourceRewrite: rescan" in str(caught.value)
    with closing(make().open("f")) as session:
        assert session.lag(end).records == 0
        assert session.lags("table", end["table"], session.end()["table"])


def test_a_rewrite_passed_over_is_told_once(
    make: MakeSource, catalog: Catalog, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = make_table(catalog, namespace)
    table.append(rows(0, 20))
    _, end = read(make())
    table.delete("id < 5")
    table.append(rows(20, 22))
    with caplog.at_level(logging.WARNING):
        found, later = read(make(onSourceRewrite="ignore"), end)
    assert ids(found) == [20, 21]
    told = [one.getMessage() for one in caplog.records if "passed over" in one.getMessage()]
    assert len(told) == 1
    assert "took away or replaced 20 rows" in told[0]
    assert read(make(), later) == ([], later)


def test_a_rewrite_read_again_in_full_once(
    make: MakeSource, catalog: Catalog, namespace: str
) -> None:
    table = make_table(catalog, namespace)
    table.append(rows(0, 20))
    source = make(onSourceRewrite="rescan")
    _, end = read(source)
    table.append(rows(20, 22))
    table.delete("id < 5")
    found, later = read(source, end)
    assert sorted(ids(found)) == list(range(5, 22))
    assert read(source, later) == ([], later)
    table.append(rows(22, 23))
    assert ids(read(source, later)[0]) == [22]


def test_an_overwrite_that_only_adds_is_no_rewrite(
    make: MakeSource,
    catalog: Catalog,
    namespace: str,
    spark: SparkSession,
    seaweedfs: SeaweedFS,
) -> None:
    table = make_table(catalog, namespace, **{"write.merge.mode": "merge-on-read"})
    table.append(rows(0, 3))
    _, end = read(make())
    name = lake(spark, seaweedfs)
    merge = (
        f"merge into {name}.{namespace}.events t using (select 9L as id, 'x' as name) s "
        "on t.id = s.id when matched then update set * when not matched then insert *"
    )
    spark.sql(merge).collect()
    assert ids(read(make(), end)[0]) == [9]


def test_what_expired_is_told(make: MakeSource, catalog: Catalog, namespace: str) -> None:
    table = make_table(catalog, namespace)
    table.append(rows(0, 3))
    _, end = read(make())
    lost = stands(end)
    table.append(rows(3, 6))
    table.append(rows(6, 9))
    first, second, _ = table.snapshots()
    table.maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
    assert ids(read(make(), end)[0]) == [3, 4, 5, 6, 7, 8]  # its child is still known
    table.maintenance.expire_snapshots().by_id(second.snapshot_id).commit()
    with pytest.raises(PermanentError) as caught:
        read(make(), end)
    assert f"what came after snapshot {lost.snapshot} (sequence number 1, committed {lost.at})" in (
        str(caught.value)
    )
    assert "start from earliest with table: truncate" in str(caught.value)
    with closing(make().open("f")) as session:
        assert session.lags("table", end["table"], session.end()["table"])


def test_a_snapshot_that_expires_in_the_middle_is_told(
    make: MakeSource, catalog: Catalog, namespace: str
) -> None:
    table = make_table(catalog, namespace)
    table.append(rows(0, 20))
    _, inside = next(iter(spans(make(maxRowsPerPoll=8))))
    table.append(rows(20, 21))
    table.maintenance.expire_snapshots().by_id(table.snapshots()[0].snapshot_id).commit()
    with pytest.raises(PermanentError, match=r"the rest of snapshot .* has expired"):
        read(make(), inside)


def test_a_table_that_was_rolled_back(
    make: MakeSource, catalog: Catalog, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = make_table(catalog, namespace)
    table.append(rows(0, 3))
    first = table.snapshots()[0].snapshot_id
    table.append(rows(3, 6))
    _, end = read(make())
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    with pytest.raises(PermanentError, match="was rolled back: its current snapshot"):
        read(make(), end)
    with closing(make().open("f")) as session:
        assert session.lags("table", end["table"], session.end()["table"])
        assert not session.lags("table", session.end()["table"], end["table"])
    found, back = read(make(onSourceRewrite="ignore"), end)
    assert (found, stands(back).snapshot) == ([], first)
    assert "was rolled back" in caplog.text
    table.refresh().append(rows(6, 8))
    assert ids(read(make(onSourceRewrite="ignore"), end)[0]) == [6, 7]
    assert ids(read(make(onSourceRewrite="rescan"), end)[0]) == [0, 1, 2, 6, 7]


def test_where_a_person_wants_to_begin(make: MakeSource, catalog: Catalog, namespace: str) -> None:
    table = make_table(catalog, namespace)
    for number in range(3):
        table.append(rows(number, number + 1))
    with closing(make().open("f")) as session:
        earliest, latest = session.start("earliest"), session.start("latest")
        second = datetime.fromtimestamp(table.snapshots()[1].timestamp_ms / 1000, UTC)
        middle = session.start(second.isoformat())
        before = session.start((second - timedelta(days=1)).isoformat())
    assert [ids(read(make(), at)[0]) for at in (earliest, before)] == [[0, 1, 2]] * 2
    assert read(make(), latest) == ([], latest)
    assert ids(read(make(), middle)[0]) == [1, 2]


def test_a_time_counts_when_a_snapshot_was_published(
    make: MakeSource, catalog: Catalog, namespace: str
) -> None:
    """Written aside, on a branch of the table, and made current later with all before it."""
    table = make_table(catalog, namespace)
    table.append(rows(0, 1))
    with table.manage_snapshots() as change:
        change.create_branch(table.snapshots()[0].snapshot_id, "audit")
    table.append(rows(1, 2), branch="audit")
    table.append(rows(2, 3), branch="audit")
    between = datetime.now(UTC)
    with table.manage_snapshots() as change:
        change.set_current_snapshot(ref_name="audit")
    table.append(rows(3, 4))
    with closing(make().open("f")) as session:
        after = session.start(between.isoformat())
    assert ids(read(make(), after)[0]) == [1, 2, 3]


def test_lag_is_rows_of_files_and_the_age_of_the_oldest_unread(
    make: MakeSource, catalog: Catalog, namespace: str
) -> None:
    table = make_table(catalog, namespace)
    table.append(rows(0, 20))
    (_, inside), *_, (_, end) = spans(make(maxRowsPerPoll=8))
    table.append(rows(20, 25))
    table.append(rows(25, 30))
    with closing(make().open("f")) as session:
        assert session.lag(session.start()).records == 30
        assert session.lag(inside).records == 22
        found = session.lag(end)
        assert found.records == 10
        assert 0 < (found.seconds or 0) < 60
        assert session.lag(session.end()).records == 0
        assert session.lag(session.end()).seconds == 0


def test_which_position_is_behind(make: MakeSource, catalog: Catalog, namespace: str) -> None:
    table = make_table(catalog, namespace)
    table.append(rows(0, 20))
    places = [after["table"] for _, after in spans(make(maxRowsPerPoll=8))]
    table.append(rows(20, 21))
    with closing(make().open("f")) as session:
        places = ["{}", *places, session.end()["table"]]
        for low, one in enumerate(places):
            for high, other in enumerate(places):
                assert session.lags("table", one, other) == (low < high), (one, other)
        assert session.lags("table", None, places[-1])
        newer = str(places[-1]).replace('"sequence":2', '"sequence":3')
        unseen = json.loads(newer) | {"snapshot": "1"}
        assert not session.lags("table", json.dumps(unseen), places[-1])


def test_a_branch_that_reads_other_files_of_the_same_snapshot(
    make: MakeSource, catalog: Catalog, namespace: str
) -> None:
    """One began anew in the middle of an appended snapshot of the other: it reads it whole."""
    table = make_table(catalog, namespace)
    table.append(rows(0, 5))
    _, end = read(make())
    table.append(rows(5, 25))
    (_, added), *_ = spans(make(maxRowsPerPoll=8), end)
    (_, full), *_ = spans(make(maxRowsPerPoll=8))
    assert (stands(added).scan, stands(full).scan) == ("added", "full")
    source = make()
    with closing(source.open("f")) as session:
        assert session.lags("table", full["table"], added["table"])
        assert not session.lags("table", added["table"], full["table"])
        anew = session.plan(session.start(), Limit(), added)
        assert ids([row for part in parts(source, anew) for row in part]) == list(range(25))
        after = session.fold({piece.partition: piece.upto for piece in anew.slices})
        assert after == session.end()
        assert session.lags("table", added["table"], after["table"])
        rest = session.plan(end, Limit(), full)
        assert ids([row for part in parts(source, rest) for row in part]) == list(range(5, 25))


def test_what_is_no_position(make: MakeSource, catalog: Catalog, namespace: str) -> None:
    make_table(catalog, namespace).append(rows(0, 5))
    with closing(make().open("f")) as session, pytest.raises(PermanentError, match="5 is not a"):
        session.plan({"table": "5"}, Limit())


def test_a_branch_that_is_behind_stops_where_the_others_stand(
    make: MakeSource, catalog: Catalog, namespace: str
) -> None:
    table = make_table(catalog, namespace)
    table.append(rows(0, 20))
    places = [after for _, after in spans(make(maxRowsPerPoll=8))]
    source = make()
    with closing(source.open("f")) as session:
        span = session.plan(session.start(), Limit(), places[1])
        assert session.fold({p.partition: p.upto for p in span.slices}) == places[1]
        assert ids([row for part in parts(source, span) for row in part]) == list(range(16))
        assert session.plan(places[1], Limit(), places[1]).empty
        assert session.plan(places[1], Limit(), places[0]).empty
