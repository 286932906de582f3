"""Groups in a topic: what is written for what was sent, and exactly once."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, cast

import psycopg
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]  # public, untyped
from pyarrow import fs
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.cli import main
from dataflow_assets.cli.preview.live import waiting
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.flow import Flow
from dataflow_assets.languages.sql.state.driver import Limits
from dataflow_assets.languages.sql.state.session import ViewSession
from dataflow_assets.manifests.load import load
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Patience, Report, Request, Start
from tests.conftest import Topics
from tests.connectors.files.driver import bucket
from tests.drained import drained
from tests.in_process import Session
from tests.lanes.driving import Driving
from tests.languages.sql.files import Sent, Sql, latest

Run = Callable[[Flow], list[Report]]
VIEWS = "user_id BIGINT, page_id BIGINT, viewtime TIMESTAMP, user_region STRING"
REGIONS = "user_region STRING, pv BIGINT, uv BIGINT, PRIMARY KEY (user_region) NOT ENFORCED"
QUERY = "SELECT user_region, COUNT(*), COUNT(DISTINCT user_id) FROM s GROUP BY user_region"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DATAFLOW_FILES", str(tmp_path))
    return tmp_path / "_state"


def view(user: int | None, region: str | None) -> Sent:
    return None, json.dumps({"user_id": user, "user_region": region}).encode()


def test_the_seeds_query(sql: Sql, run: Run) -> None:
    flow = sql.write(VIEWS, REGIONS, QUERY)
    sql.send([view(1, "eu"), view(1, "eu"), view(2, "eu"), view(None, "us"), view(1, None)])
    (*_, last) = run(flow)
    assert last.lag.state
    assert latest(sql.stored()) == {
        b'{"user_region":"eu"}': b'{"user_region":"eu","pv":3,"uv":2}',
        b'{"user_region":"us"}': b'{"user_region":"us","pv":1,"uv":0}',
    }
    sql.send([view(2, "eu"), view(3, "us")])
    run(flow)
    assert latest(sql.stored()) == {
        b'{"user_region":"eu"}': b'{"user_region":"eu","pv":4,"uv":2}',
        b'{"user_region":"us"}': b'{"user_region":"us","pv":2,"uv":1}',
    }


ROWS = "k BIGINT, g STRING, a INT, PRIMARY KEY (k) NOT ENFORCED"
SUMS = "g STRING, n BIGINT, total INT, mean INT, PRIMARY KEY (g) NOT ENFORCED"
SUMMED = "SELECT g, COUNT(*), SUM(a), AVG(a) FROM s GROUP BY g"


def row(key: int, group: str, a: int | None) -> Sent:
    return b'{"k":%d}' % key, json.dumps({"k": key, "g": group, "a": a}).encode()


def groups(sql: Sql) -> list[tuple[object, ...]]:
    """What the topic says of each group, in the order of their keys."""
    stored = latest(sql.stored())
    return [tuple(json.loads(value).values()) for _, value in sorted(stored.items())]


def test_a_key_that_moves_leaves_its_group_and_the_last_one_deletes_it(sql: Sql, run: Run) -> None:
    flow = sql.write(ROWS, SUMS, SUMMED)
    sql.send([row(1, "x", 5), row(2, "x", 5), row(3, "y", None)])
    run(flow)
    assert groups(sql) == [("x", 2, 10, 5), ("y", 1, None, None)]
    sql.send([row(1, "y", 5), (b'{"k":2}', None), (b'{"k":9}', None), row(3, "y", 5)])
    run(flow)
    assert groups(sql) == [("y", 2, 10, 5)]
    assert (b'{"g":"x"}', None) in sql.rows()
    sql.send([row(1, "y", 5)])
    before = sql.rows()
    run(flow)
    assert sql.rows() == before  # nothing has changed, and nothing is written


def test_whole_numbers_are_cut_and_overflow_as_in_flink(sql: Sql, run: Run) -> None:
    into = "g STRING, total INT, mean INT, third BIGINT, PRIMARY KEY (g) NOT ENFORCED"
    query = "SELECT g, SUM(a), AVG(a), COUNT(*) * 5 / 3 FROM s GROUP BY g"
    flow = sql.write("g STRING, a INT", into, query)
    most = 2**31 - 1
    sent = [("over", most), ("over", 1), ("cut", -3), ("cut", -4)]
    sql.send((None, json.dumps({"g": g, "a": a}).encode()) for g, a in sent)
    run(flow)
    assert groups(sql) == [("cut", -7, -3, 3), ("over", -(2**31), 2**30, 3)]


def test_having_and_filter(sql: Sql, run: Run) -> None:
    into = "g STRING, n BIGINT, big BIGINT, PRIMARY KEY (g) NOT ENFORCED"
    query = (
        "SELECT g, COUNT(*), COUNT(*) FILTER (WHERE a > 1) FROM s GROUP BY g HAVING COUNT(*) < 3"
    )
    flow = sql.write("g STRING, a INT", into, query)
    sql.send((None, b'{"g":"x","a":%d}' % a) for a in (1, 2))
    run(flow)
    assert groups(sql) == [("x", 2, 1)]
    sql.send([(None, b'{"g":"x","a":3}')])
    run(flow)
    assert groups(sql) == []
    assert sql.rows()[-1] == (b'{"g":"x"}', None)


def test_nan_and_decimals_in_groups_and_both_zeros_in_one(sql: Sql, run: Run) -> None:
    """DISTINCT tells the zeros apart, as Flink does: by Double.equals, or by the bits."""
    into = "d DOUBLE, n BIGINT, u BIGINT, total DECIMAL(38, 2), PRIMARY KEY (d) NOT ENFORCED"
    query = "SELECT d, COUNT(*), COUNT(DISTINCT d), SUM(p) FROM s GROUP BY d"
    flow = sql.write("d DOUBLE, p DECIMAL(10, 2)", into, query)
    values = ['"NaN"', '"NaN"', "0.0", "-0.0", "0.0"]
    sql.send((None, b'{"d":%s,"p":0.1}' % one.encode()) for one in values)
    run(flow)
    assert sorted(latest(sql.stored()).values()) == [
        b'{"d":"NaN","n":2,"u":1,"total":0.2}',
        b'{"d":0.0,"n":3,"u":2,"total":0.3}',
    ]


def test_a_group_without_a_key_is_rejected_or_left_out(sql: Sql, run: Run) -> None:
    sql.send([view(1, None), view(1, "eu")])
    (*_, last) = run(sql.write(VIEWS, REGIONS, QUERY))
    assert last.checkpoint.totals.rejected == 1
    (_, told) = sql.stored(f"{sql.target}.rejected")[0][1:]
    assert "Column 'user_region' is NOT NULL" in json.loads(told or b"")["error"]["message"]


def test_such_groups_are_left_out_where_drop_says_so(sql: Sql, run: Run) -> None:
    sql.send([view(1, None), view(1, "eu")])
    drop = "SET 'table.exec.sink.not-null-enforcer' = 'DROP';"
    (*_, last) = run(sql.write(VIEWS, REGIONS, QUERY, drop))
    assert last.checkpoint.totals.rejected == 0
    assert groups(sql) == [("eu", 1, 1)]


def test_what_cannot_be_read_is_rejected_with_its_place(sql: Sql, run: Run) -> None:
    flow = sql.write(ROWS, SUMS, SUMMED)
    sql.send([row(1, "x", 5), (b'{"k":1}', b"{bad"), (None, b'{"k":2}'), (b"{", b'{"k":3}')])
    (*_, last) = run(flow)
    assert last.checkpoint.totals.rejected == 3
    assert groups(sql) == [("x", 1, 5, 5)]
    errors = [json.loads(one or b"") for _, _, one in sql.stored(f"{sql.target}.rejected")]
    told = {one["error"]["metadata"]["offset"]: one["error"]["message"] for one in errors}
    assert sorted(told) == [1, 2, 3]
    assert "not JSON" in told[1]
    assert "the record has no key" in told[2]
    assert "key: not JSON" in told[3]
    assert errors[0]["error"]["metadata"]["topic"] == sql.source
    assert errors[0]["original_message"] == {"original_data": "{bad"}
    assert len({one["error"]["id"] for one in errors}) == 3


def test_a_field_that_no_group_needs_is_not_read(sql: Sql, run: Run) -> None:
    """As Flink reads it: what is not used is no reason to reject a record."""
    sql.send([(None, b'{"user_id":1,"user_region":"eu","viewtime":"soon","page_id":"x"}')])
    sql.send([(None, b'{"user_id":"x","user_region":"eu"}')])
    (*_, last) = run(sql.write(VIEWS, REGIONS, QUERY))
    assert last.checkpoint.totals.rejected == 1
    assert groups(sql) == [("eu", 1, 1)]


def test_groups_of_groups_and_distinct(sql: Sql, run: Run) -> None:
    into = "n BIGINT, regions BIGINT, PRIMARY KEY (n) NOT ENFORCED"
    inner = "SELECT user_region AS r, COUNT(*) AS n FROM s GROUP BY user_region"
    flow = sql.write(VIEWS, into, f"SELECT n, COUNT(DISTINCT r) FROM ({inner}) GROUP BY n")
    sql.send([view(1, "eu"), view(1, "us"), view(1, "as"), view(2, "as")])
    run(flow)
    assert groups(sql) == [(1, 2), (2, 1)]
    sql.send([view(1, "us"), view(1, "as")])
    run(flow)
    assert groups(sql) == [(1, 1), (2, 1), (3, 1)]


def test_groups_of_two_topics_in_one_table(sql: Sql, run: Run, topic: Topics) -> None:
    """UNION ALL of grouped queries: two flows, whose rows a constant of the key tells apart."""
    other = Sql(sql.path, sql.kafka, topic(), sql.target)
    into = "kind STRING, g STRING, n BIGINT, PRIMARY KEY (kind, g) NOT ENFORCED"
    sql.write("g STRING", into, "SELECT 'x', g, COUNT(*) FROM s GROUP BY g")
    text = sql.path.read_text().replace("GROUP BY g;", "GROUP BY g UNION ALL ")
    more = f"CREATE TABLE w WITH ('topic' = '{other.source}') LIKE s (OVERWRITING OPTIONS);"
    text = text.replace("INSERT INTO", f"{more} INSERT INTO")
    sql.path.write_text(f"{text} SELECT 'y', g, COUNT(*) FROM w GROUP BY g;")
    flows = load(sql.path).flows
    for turn in (1, 2):
        for one, amount in ((sql, 2), (other, 1)):
            one.send([(None, b'{"g":"a"}')] * amount)
        for flow in flows:
            run(flow)
        assert groups(sql) == [("x", "a", 2 * turn), ("y", "a", turn)]


def test_distinct_rows(sql: Sql, run: Run) -> None:
    flow = sql.write(ROWS, "g STRING, PRIMARY KEY (g) NOT ENFORCED", "SELECT DISTINCT g FROM s")
    sql.send([row(1, "x", 1), row(2, "x", 2), row(3, "y", 3)])
    run(flow)
    assert groups(sql) == [("x",), ("y",)]
    sql.send([row(1, "z", 1), (b'{"k":3}', None)])
    run(flow)
    assert groups(sql) == [("x",), ("z",)]


def test_a_changed_query_stops_unless_it_is_only_spelling(sql: Sql, run: Run) -> None:
    run_first = sql.write(ROWS, SUMS, SUMMED)
    sql.send([row(1, "x", 5)])
    run(run_first)
    sql.send([row(2, "x", 6)])
    spelt = "select g as h, count(*) as x, -- a comment\n sum(s.a), AVG(a) from s group by s.g"
    run(sql.write(ROWS, SUMS, spelt))
    assert groups(sql) == [("x", 2, 11, 5)]
    sql.send([row(3, "x", 6)])
    with pytest.raises(PermanentError, match="the query was changed, and what is kept") as told:
        run(sql.write(ROWS, SUMS, SUMMED.replace("SUM(a)", "MAX(a)")))
    assert "dataflow run PATH --flow default/o.s --from earliest" in str(told.value)
    having = f"{SUMMED} HAVING COUNT(*) > 3"
    with pytest.raises(PermanentError, match="Or keep them, and accept") as told:
        run(sql.write(ROWS, SUMS, having))
    accept = str(told.value).split("write ")[1].split(" in front")[0]
    run(sql.write(ROWS, SUMS, having, accept))
    assert groups(sql) == []


def test_the_status_of_a_state_says_how_far_its_topic_was_read(
    sql: Sql, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    sql.send([row(1, "x", 5), row(2, "y", 5)])
    run(sql.write(ROWS, SUMS, SUMMED))
    sql.send([row(3, "x", 5)])
    assert main(["status", str(sql.path)]) == 0
    said = capsys.readouterr().out
    assert "view:offsets 0=2, generation" in said
    assert "view:offsets 0=3, seen" in said


def test_a_changed_query_stops_though_no_record_has_come(sql: Sql, run: Run) -> None:
    """Else a run would be done, and the rows of the target would be those of the query before."""
    sql.send([row(1, "x", 5)])
    run(sql.write(ROWS, SUMS, SUMMED))
    run(sql.write(ROWS, SUMS, SUMMED))
    with pytest.raises(PermanentError, match="the query was changed, and what is kept"):
        run(sql.write(ROWS, SUMS, SUMMED.replace("SUM(a)", "MAX(a)")))


def test_a_changed_query_is_built_again_from_the_earliest(sql: Sql, run: Run) -> None:
    """Rows that the query before had written, and the changed one does not have, are deleted."""
    sql.send([row(1, "x", 5), row(2, "x", 7), row(3, "y", 1)])
    run(sql.write(ROWS, SUMS, SUMMED))
    assert groups(sql) == [("x", 2, 12, 6), ("y", 1, 1, 1)]
    changed = SUMMED.replace("SUM(a)", "MAX(a)").replace("FROM s", "FROM s WHERE a > 1")
    flow = sql.write(ROWS, SUMS, changed)
    drained(flow, Start("earliest"))
    assert groups(sql) == [("x", 2, 7, 6)]
    sql.send([row(4, "y", 3)])
    run(flow)
    assert groups(sql) == [("x", 2, 7, 6), ("y", 1, 3, 3)]


def test_a_query_that_gets_or_loses_its_state_begins_again(sql: Sql, run: Run) -> None:
    plain, keyed = "SELECT g, a FROM s", "g STRING, n BIGINT, PRIMARY KEY (g) NOT ENFORCED"
    grouped = "SELECT g, COUNT(*) FROM s GROUP BY g"
    sql.send([(None, b'{"g":"x","a":7}')])
    run(sql.write("g STRING, a BIGINT", keyed, plain))
    for query, wanted in ((grouped, ("x", 1)), (plain, ("x", 7))):
        flow = sql.write("g STRING, a BIGINT", keyed, query)
        with pytest.raises(PermanentError, match="its checkpoint was written when the flow read"):
            run(flow)
        drained(flow, Start("earliest"))
        assert groups(sql) == [wanted]


def test_a_rewind_deletes_no_row_that_is_there_still(sql: Sql, run: Run, state: Path) -> None:
    flow = sql.write(ROWS, SUMS, SUMMED)
    for n in range(3):
        sql.send([row(n, "x", 5), row(n + 9, f"g{n}", 1)])
        run(flow)
    before = groups(sql)
    drained(flow, Start("earliest"))
    assert groups(sql) == before
    sql.send([row(1, "z", 5)])
    run(flow)
    sql.send([row(1, "q", 5)])
    run(flow)
    generations = {path.parent.parent.name for path in state.rglob("manifest.json")}
    assert len(generations) == 1  # nothing of the state before is left


def test_a_lost_or_damaged_file_is_told(sql: Sql, run: Run, state: Path) -> None:
    flow = sql.write(ROWS, SUMS, SUMMED)
    sql.send([row(1, "x", 5)])
    run(flow)
    sql.send([row(2, "x", 5)])
    (file,) = state.rglob("groups-0-*.parquet")
    content = file.read_bytes()
    file.write_bytes(content[:-1] + b"x")
    with pytest.raises(PermanentError, match=r"is damaged: .* run PATH --flow default/o.s --from"):
        run(flow)
    file.unlink()
    with pytest.raises(PermanentError, match="is gone"):
        run(flow)
    file.write_bytes(content)
    run(flow)
    assert groups(sql) == [("x", 2, 10, 5)]


def test_a_large_span_and_a_small_one_come_to_the_same(
    sql: Sql, run: Run, monkeypatch: pytest.MonkeyPatch, topic: Topics
) -> None:
    """Read and merged in tasks, bucket by bucket; then on the driver, beside the buckets."""
    wide = Sql(sql.path, sql.kafka, topic(2), topic(2))
    flow = wide.write(ROWS, SUMS, SUMMED)
    sent = [row(n % 900, f"g{n * 7 % 40}", n % 13) for n in range(12_000)]
    wide.send(sent, partitions=2)
    monkeypatch.setattr(ViewSession, "limits", Limits(few=100))
    run(flow)
    assert latest(wide.stored()) == summed(sent)
    more = [row(n, f"g{n}", None if n % 2 else 5) for n in range(40)]
    wide.send(more, partitions=2)
    run(flow)
    assert latest(wide.stored()) == summed([*sent, *more])


def summed(sent: list[Sent]) -> dict[bytes | None, bytes]:
    """What SUMMED makes of rows, folded anew."""
    found: dict[str, list[int | None]] = {}
    for value in dict(sent).values():
        one = json.loads(value or b"")
        found.setdefault(one["g"], []).append(one["a"])
    rows: dict[bytes | None, bytes] = {}
    for g, values in found.items():
        there = [one for one in values if one is not None]
        total, mean = (sum(there), sum(there) // len(there)) if there else (None, None)
        body = {"g": g, "n": len(values), "total": total, "mean": mean}
        rows[b'{"g":"%s"}' % g.encode()] = json.dumps(body, separators=(",", ":")).encode()
    return rows


def test_a_look_shows_what_the_next_records_make_by_themselves(sql: Sql) -> None:
    flow = sql.write(ROWS, SUMS, SUMMED)
    sql.send([row(1, "x", 5), row(2, "x", 6), (b"{", b"{}")])
    found = waiting(flow, 10)
    assert [one.raw for one in found.messages][1] == b'{"g":"x","n":2,"total":11,"mean":5}'
    assert found.messages[0].unreadable is not None


def test_groups_in_postgresql(
    sql: Sql, run: Run, postgresql: devservers.PostgreSQL, schema: str
) -> None:
    with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
        connection.execute(
            f"CREATE TABLE {schema}.t (g text PRIMARY KEY, n bigint, total int, mean int)".encode()
        )
        options = {"connector": "postgresql", "url": postgresql.dsn(), "table-name": f"{schema}.t"}
        flow = sql.write(ROWS, SUMS, SUMMED, target_with=options)

        def rows() -> list[tuple[object, ...]]:
            return connection.execute(f"SELECT * FROM {schema}.t ORDER BY g".encode()).fetchall()

        sql.send([row(1, "x", 5), row(2, "x", 6), row(3, "y", None)])
        run(flow)
        assert rows() == [("x", 2, 11, 5), ("y", 1, None, None)]
        sql.send([row(1, "z", 5), (b'{"k":3}', None)])
        run(flow)
        assert rows() == [("x", 1, 6, 6), ("z", 1, 5, 5)]


def test_a_missing_topic_is_made_for_groups(sql: Sql, run: Run) -> None:
    new = Sql(sql.path, sql.kafka, sql.source, f"{sql.target}-new")
    flow = new.write(ROWS, SUMS, SUMMED)
    sql.send([(b'{"k":9}', None)])
    run(flow)
    sql.send([row(1, "x", 5)])
    run(flow)
    assert groups(new) == [("x", 1, 5, 5)]


@pytest.mark.full
def test_a_large_span_on_spark(sql: Sql, spark: SparkSession, topic: Topics) -> None:
    """What is read and merged in tasks travels to Spark's own workers and back."""
    wide = Sql(sql.path, sql.kafka, topic(2), topic(2))
    flow = wide.write(ROWS, SUMS, SUMMED)
    sent = [row(n, f"g{n * 7 % 40}", n % 13) for n in range(30_000)]
    wide.send(sent, partitions=2)
    list(drain(flow, lambda: spark, Request(patience=Patience(0, 0.05, 0.2))))
    assert latest(wide.stored()) == summed(sent)
    more = [row(n, f"g{n % 50}", None if n % 2 else 5) for n in range(9_000)]
    wide.send(more, partitions=2)
    list(drain(flow, lambda: spark, Request(patience=Patience(0, 0.05, 0.2))))
    assert latest(wide.stored()) == summed([*sent, *more])


def test_a_state_on_s3(
    sql: Sql, run: Run, seaweedfs: devservers.SeaweedFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, name = bucket(seaweedfs)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", seaweedfs.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", seaweedfs.secret_key)
    monkeypatch.setenv("AWS_REGION", seaweedfs.region)
    monkeypatch.setenv("AWS_S3_ENDPOINT", seaweedfs.s3_endpoint)
    placed = f"SET 'dataflow.stateLocation' = 's3://{name}/states';"
    flow = sql.write(ROWS, SUMS, SUMMED, placed)
    for n in range(4):
        sql.send([row(n, "x", n)])
        run(flow)
    assert groups(sql) == [("x", 4, 6, 1)]
    found = [one.path for one in store.get_file_info(fs.FileSelector(name, recursive=True))]
    manifests = [path for path in found if path.endswith("manifest.json")]
    assert len(manifests) == 2  # those of older states are deleted
    monkeypatch.setenv("AWS_S3_ENDPOINT", "http://127.0.0.1:9")
    sql.send([row(9, "x", 9)])
    with pytest.raises(TransientError, match=r"the location of its state, s3://.* cannot be"):
        run(flow)
    monkeypatch.setenv("AWS_S3_ENDPOINT", seaweedfs.s3_endpoint)
    run(flow)
    assert groups(sql) == [("x", 5, 15, 3)]


def test_groups_in_a_lane_beside_another_flow(sql: Sql, topic: Topics) -> None:
    """Large changes are merged in jobs beside those of the lane."""
    flow = sql.write(ROWS, SUMS, SUMMED)
    other = Sql(sql.path.with_name("two.sql"), sql.kafka, topic(), topic())
    plain = replace(other.write(ROWS, ROWS, "SELECT * FROM s"), name="plain")
    sent = [row(n % 900, f"g{n * 7 % 40}", n % 13) for n in range(8_000)]
    sql.send(sent)
    session = cast("Any", Session(_no_spark))
    driving = Driving(lambda: session, [flow, plain])
    try:
        driving.until(lambda: latest(sql.stored()) == summed(sent), 120)
        sql.send([row(1, "x", 7)])
        other.send([row(1, "x", 7)])
        sent.append(row(1, "x", 7))
        driving.until(lambda: latest(sql.stored()) == summed(sent) and other.rows(), 60)
        assert driving.left(flow) == driving.left(plain) == []
    finally:
        driving.end()


def _no_spark() -> NoReturn:
    raise NotImplementedError


def test_new_partitions_of_an_upsert_table_are_warned_of_and_read(
    sql: Sql, run: Run, kafka: devservers.Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    """A key that is sent to another partition than before is one row all the same."""
    flow = sql.write(ROWS, SUMS, SUMMED)
    sql.send([row(1, "x", 5), row(2, "x", 5)])
    run(flow)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_partitions([NewPartitions(sql.source, 3)])[sql.source].result(20)
    sql.send([row(n, "y", 1) for n in range(20)], partitions=3)
    run(flow)
    assert "has new partitions (1, 2): keys may be in another partition than before" in caplog.text
    assert groups(sql) == [("y", 20, 20, 1)]


def test_a_group_that_no_expression_can_handle_stops_no_other(sql: Sql, run: Run) -> None:
    into = "g STRING, n INT, PRIMARY KEY (g) NOT ENFORCED"
    odd = "CARDINALITY(GREATEST(MAP['a', 1], MAP['b', 2]))"
    query = f"SELECT g, CASE WHEN SUM(a) > 5 THEN {odd} ELSE 1 END FROM s GROUP BY g"
    flow = sql.write("g STRING, a INT", into, query)
    sql.send([(None, b'{"g":"odd","a":9}'), (None, b'{"g":"good","a":1}')])
    (*_, last) = run(flow)
    assert groups(sql) == [("good", 1)]
    assert last.checkpoint.totals.rejected == 1
    (_, entry) = sql.stored(f"{sql.target}.rejected")[0][1:]
    assert "cannot handle this row" in json.loads(entry or b"")["error"]["message"]
