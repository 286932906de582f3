"""Tables of topics on a broker: what is written for what was sent, byte for byte."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

import devservers
from dataflow_assets.errors import PermanentError
from dataflow_assets.flow import Flow
from dataflow_assets.runs.request import Report
from tests.conftest import Topics
from tests.languages.sql.files import Sent, Sql, latest, messages

Run = Callable[[Flow], list[Report]]
KEYED = "k BIGINT, a STRING, PRIMARY KEY (k) NOT ENFORCED"
PV = "user_region STRING, pv BIGINT, uv BIGINT, PRIMARY KEY (user_region) NOT ENFORCED"
SENT: list[Sent] = [(None, b'{"user_region":"eu","pv":1,"uv":1}')]


def reasons(sql: Sql) -> list[str]:
    """Why records were rejected, in the order of their topic."""
    stored = sql.stored(f"{sql.target}.rejected")
    return [json.loads(value or b"")["error"]["message"] for _, _, value in stored]


@pytest.mark.parametrize(
    ("options", "key", "value"),
    [
        ({}, b'{"user_region":"eu"}', b'{"user_region":"eu","pv":1,"uv":1}'),
        (
            {"value.fields-include": "EXCEPT_KEY"},
            b'{"user_region":"eu"}',
            b'{"pv":1,"uv":1}',
        ),
        ({"key.format": "raw"}, b"eu", b'{"user_region":"eu","pv":1,"uv":1}'),
        (
            {"key.format": "avro", "value.format": "avro"},
            bytes.fromhex("046575"),
            bytes.fromhex("04657502020202"),
        ),
        ({"key.format": "csv", "value.format": "csv"}, b"eu", b"eu,1,1"),
        (
            {"value.format": "csv", "value.csv.field-delimiter": ";"},
            b'{"user_region":"eu"}',
            b"eu;1;1",
        ),
    ],
    ids=["json", "except-key", "raw-key", "avro", "csv", "semicolons"],
)
def test_keys_and_values_are_flinks_bytes(
    sql: Sql, run: Run, options: dict[str, str], key: bytes, value: bytes
) -> None:
    columns = "user_region STRING, pv BIGINT, uv BIGINT"
    flow = sql.write(columns, PV, "SELECT * FROM s", target_with=options)
    sql.send(SENT)
    run(flow)
    assert sql.rows() == [(key, value)]


@pytest.mark.parametrize("kind", ["json", "csv", "avro"])
def test_what_was_written_is_read_again(sql: Sql, run: Run, kind: str) -> None:
    """Each format's own rows, with every type that it has, through a second INSERT."""
    columns = (
        "k BIGINT, t STRING, b BOOLEAN, i INT, d DOUBLE, n DECIMAL(10, 2), y BYTES, day DATE, "
        "at TIMESTAMP(3), l ARRAY<INT>"
    )
    keyed = f"{columns}, PRIMARY KEY (k) NOT ENFORCED"
    body = (
        b'{"k":7,"t":"a,\\"b\\"","b":true,"i":-3,"d":0.5,"n":12.30,"y":"AQI=","day":"2020-12-30",'
        b'"at":"2020-12-30 12:13:14.5","l":[1,2]}'
    )
    formats = {"key.format": kind, "value.format": kind}
    if kind == "csv":  # which has no nulls else
        formats["value.csv.null-literal"] = "~"
    flow = sql.write(columns, keyed, "SELECT * FROM s", target_with=formats)
    sql.send([(None, body), (None, b'{"k":8}')])
    run(flow)
    (_, first), (_, second) = sql.rows()
    again = Sql(sql.path, sql.kafka, sql.target, f"{sql.target}-again")
    run(again.write(keyed, keyed, "SELECT * FROM s", source_with=formats))
    assert [json.loads(value or b"") for _, value in again.rows()] == [
        json.loads(body),
        {**dict.fromkeys(json.loads(body)), "k": 8},
    ]
    assert first is not None
    assert second is not None


def test_upserts_and_tombstones_are_passed_on(sql: Sql, run: Run) -> None:
    flow = sql.write(KEYED, KEYED, "SELECT k, UPPER(a) FROM s")
    sql.send([(b'{"k":1}', b'{"k":1,"a":"x"}'), (b'{"k":1}', b'{"k":1,"a":"y"}')])
    run(flow)
    sql.send([(b'{"k":1}', None), (b'{"k":2}', b'{"k":2,"a":null}')])
    run(flow)
    assert sql.rows() == [
        (b'{"k":1}', b'{"k":1,"a":"X"}'),
        (b'{"k":1}', b'{"k":1,"a":"Y"}'),
        (b'{"k":1}', None),
        (b'{"k":2}', b'{"k":2,"a":null}'),
    ]


def test_a_row_that_where_leaves_out_now_is_deleted(sql: Sql, run: Run) -> None:
    flow = sql.write(KEYED, KEYED, "SELECT * FROM s WHERE a <> 'gone'")
    sql.send([(b'{"k":1}', b'{"k":1,"a":"x"}'), (b'{"k":1}', b'{"k":1,"a":"gone"}')])
    run(flow)
    assert sql.rows() == [(b'{"k":1}', b'{"k":1,"a":"x"}'), (b'{"k":1}', None)]


def test_where_about_the_key_alone_deletes_nothing(sql: Sql, run: Run) -> None:
    flow = sql.write(KEYED, KEYED, "SELECT * FROM s WHERE k > 1")
    sql.send([(b'{"k":1}', b'{"k":1,"a":"x"}'), (b'{"k":1}', None), (b'{"k":2}', None)])
    run(flow)
    assert sql.rows() == [(b'{"k":2}', None)]


def test_a_key_that_the_value_lacks_is_the_keys(sql: Sql, run: Run) -> None:
    flow = sql.write(KEYED, KEYED, "SELECT * FROM s")
    sql.send([(b'{"k":1}', b'{"a":"x"}')])
    run(flow)
    assert sql.rows() == [(b'{"k":1}', b'{"k":1,"a":"x"}')]


def test_keys_are_partitioned_as_java_does(sql: Sql, run: Run, topic: Topics) -> None:
    """librdkafka's murmur2 has sent the same bytes to the source."""
    wide = Sql(sql.path, sql.kafka, topic(4), topic(4))
    flow = wide.write(KEYED, KEYED, "SELECT * FROM s")
    wide.send(((b'{"k":%d}' % n, b'{"k":%d,"a":"x"}' % n) for n in range(40)), partitions=4)
    run(flow)
    wanted = [(partition, key) for partition, key, _ in wide.stored(wide.source)]
    assert [(partition, key) for partition, key, _ in wide.stored()] == wanted
    assert len({partition for partition, _ in wanted}) == 4


def test_metadata_computed_columns_and_a_declared_key(sql: Sql, run: Run) -> None:
    columns = (
        "id BIGINT, name STRING, p INT METADATA FROM 'partition' VIRTUAL, "
        "`offset` BIGINT METADATA VIRTUAL, t STRING METADATA FROM 'topic' VIRTUAL, "
        "at TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL, big AS id * 10"
    )
    options = {"key.format": "raw", "key.fields": "id", "value.fields-include": "EXCEPT_KEY"}
    options |= {"value.format": "json"}
    flow = sql.write(
        columns,
        "k BIGINT, v STRING, PRIMARY KEY (k) NOT ENFORCED",
        "SELECT big, CONCAT_WS('/', name, CAST(p AS STRING), CAST(`offset` AS STRING), "
        "IF(t = 'x', 'x', 'other'), IF(at > TO_TIMESTAMP_LTZ(0, 3), 'now', 'then')) "
        "FROM s",
        source_with=options,
    )
    sql.send([((7).to_bytes(8, "big"), b'{"name":"ada"}')])
    run(flow)
    assert sql.rows() == [(b'{"k":70}', b'{"k":70,"v":"ada/0/0/other/now"}')]


def test_times_and_headers_are_read_and_written(sql: Sql, run: Run) -> None:
    """The seed's table with a time of its own, of the type that it declares."""
    columns = (
        "ts TIMESTAMP(3) METADATA FROM 'timestamp', user_id BIGINT, behavior STRING, "
        "h MAP<STRING, BYTES> METADATA FROM 'headers', PRIMARY KEY (user_id) NOT ENFORCED"
    )
    query = "SELECT ts + INTERVAL '1' HOUR, user_id, DATE_FORMAT(ts, 'HH:mm'), h FROM s"
    flow = sql.write(columns, columns, query, target_with={"value.fields-include": "EXCEPT_KEY"})
    producer = Producer({"bootstrap.servers": sql.kafka.bootstrap})
    key = b'{"user_id":1}'
    headers: list[tuple[str, str | bytes | None]] = [("a", b"\xff"), ("a", b"\1"), ("b", None)]
    at = 1_600_000_000_123
    producer.produce(sql.source, b'{"behavior":"x"}', key, 0, timestamp=at, headers=headers)
    producer.produce(sql.source, None, key, 0)
    assert producer.flush(60) == 0
    run(flow)
    first, second = messages(sql.kafka.bootstrap, sql.target)
    assert (first.key(), first.value()) == (key, b'{"behavior":"12:26"}')
    assert first.timestamp()[1] == at + 3_600_000
    assert first.headers() == [("a", b"\x01"), ("b", None)]
    assert (second.key(), second.value()) == (key, None)


def test_a_text_that_the_charset_lacks_is_rejected_alone(sql: Sql, run: Run) -> None:
    raw = {"value.format": "raw", "value.raw.charset": "ISO-8859-1"}
    raw["value.fields-include"] = "EXCEPT_KEY"
    flow = sql.write(KEYED, KEYED, "SELECT * FROM s", target_with=raw)
    sql.send([(b'{"k":1}', '{"a":"€"}'.encode()), (b'{"k":2}', '{"a":"é"}'.encode())])
    run(flow)
    assert sql.rows() == [(b'{"k":2}', b"\xe9")]
    assert "ISO-8859-1 lacks a character of the text" in reasons(sql)[0]


def test_null_in_a_column_that_is_not_null(sql: Sql, run: Run) -> None:
    columns, into = (
        "id BIGINT, a STRING",
        "k BIGINT, a STRING NOT NULL, PRIMARY KEY (k) NOT ENFORCED",
    )
    sql.send([(None, b'{"a":"x"}'), (None, b'{"id":1}'), (None, b'{"id":2,"a":"y"}')])
    run(sql.write(columns, into, "SELECT * FROM s"))
    assert sql.rows() == [(b'{"k":2}', b'{"k":2,"a":"y"}')]
    first, second = reasons(sql)
    assert "Column 'k' is NOT NULL" in first
    assert "Column 'a' is NOT NULL" in second


def test_rows_with_such_nulls_are_left_out_where_drop_says_so(sql: Sql, run: Run) -> None:
    sql.send([(None, b'{"a":"x"}'), (None, b'{"id":2,"a":"y"}')])
    drop = "SET 'table.exec.sink.not-null-enforcer' = 'DROP';"
    (*_, last) = run(sql.write("id BIGINT, a STRING", KEYED, "SELECT * FROM s", drop))
    assert sql.rows() == [(b'{"k":2}', b'{"k":2,"a":"y"}')]
    assert last.checkpoint.totals.rejected == 0


BAD: list[Sent] = [
    (None, b'{"k":1,"a":"x"}'),
    (b'{"k":1}', b"null"),
    (b'{"k":2}', b"{bad"),
    (b"{", b'{"k":3,"a":"x"}'),
    (b'{"k":4}', b'{"k":"x","a":"y"}'),
    (b'{"k":5}', b'{"k":"5","a":17}'),
    (b'{"k":6}', b""),
]


def test_what_cannot_be_read_is_rejected_with_its_place(sql: Sql, run: Run) -> None:
    sql.send(BAD)
    run(sql.write(KEYED, KEYED, "SELECT * FROM s"))
    assert sql.rows() == [(b'{"k":5}', b'{"k":5,"a":"17"}')]
    told = reasons(sql)
    parts = [
        "the record has no key, and key.format needs one",
        "the record is not a JSON object",
        "not JSON: ",
        "key: not JSON: ",
        "the field k: not a number, as BIGINT needs it",
    ]
    assert [part for part, one in zip(parts, told, strict=True) if part not in one] == []
    where = [
        json.loads(one or b"")["error"]["source"]
        for _, _, one in sql.stored(f"{sql.target}.rejected")
    ]
    assert [(one["partition"], one["offset"]) for one in where] == [("0", n) for n in range(5)]


def test_what_cannot_be_read_is_left_out_where_the_options_say_so(sql: Sql, run: Run) -> None:
    sql.send(BAD[1:])
    ignoring = {"key.json.ignore-parse-errors": "true", "value.json.ignore-parse-errors": "true"}
    (*_, last) = run(sql.write(KEYED, KEYED, "SELECT * FROM s", source_with=ignoring))
    assert latest(sql.stored()) == {b'{"k":5}': b'{"k":5,"a":"17"}'}
    assert last.checkpoint.totals.rejected == 1  # the row of key 4: its own key became null


def test_fields_that_lack_and_times_of_both_standards(sql: Sql, run: Run) -> None:
    columns = "id BIGINT, at TIMESTAMP(3), l TIMESTAMP_LTZ(3)"
    into = f"{columns}, PRIMARY KEY (id) NOT ENFORCED"
    iso = {"format": "json", "json.timestamp-format.standard": "ISO-8601"}
    sent = [
        b'{"id":1,"at":"2020-12-30 12:13:14.123","l":"2020-12-30 12:13:14Z"}',
        b'{"id":2,"at":"2020-12-30T12:13:14.123","l":"2020-12-30T12:13:14Z"}',
        b'{"id":3}',
    ]
    sql.send((None, one) for one in sent)
    run(sql.write(columns, into, "SELECT * FROM s", source_with=iso))
    assert sql.rows() == [
        (b'{"id":2}', b'{"id":2,"at":"2020-12-30 12:13:14.123","l":"2020-12-30 12:13:14Z"}'),
        (b'{"id":3}', b'{"id":3,"at":null,"l":null}'),
    ]
    assert ["the field at: not a time like 2020-12-30T12:13:14" in one for one in reasons(sql)] == [
        True
    ]


def test_fail_on_missing_field(sql: Sql, run: Run) -> None:
    sql.send([(None, b'{"k":1}'), (None, b'{"k":2,"a":null}')])
    strict = {"format": "json", "json.fail-on-missing-field": "true"}
    run(sql.write("k BIGINT, a STRING", KEYED, "SELECT * FROM s", source_with=strict))
    assert sql.rows() == [(b'{"k":2}', b'{"k":2,"a":null}')]
    assert "the field a is missing" in reasons(sql)[0]


def test_a_missing_topic_is_created_compacted(sql: Sql, run: Run, kafka: devservers.Kafka) -> None:
    from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, untyped
        AdminClient,
        ConfigResource,
        ResourceType,
    )

    new = Sql(sql.path, kafka, sql.source, f"{sql.target}-new")
    new.send([(b'{"k":1}', b'{"a":"x"}')])
    run(new.write(KEYED, KEYED, "SELECT * FROM s"))
    assert new.rows() == [(b'{"k":1}', b'{"k":1,"a":"x"}')]
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    (described,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, new.target)]).values()
    assert described.result(20)["cleanup.policy"].value == "compact"


PLAIN: dict[str, str] = {"format": "json"}


def numbered(sql: Sql, first: int, last: int) -> None:
    sql.send((None, b'{"k":%d,"a":"x"}' % n) for n in range(first, last))


def keys(sql: Sql) -> list[int]:
    return [json.loads(key or b"")["k"] for key, _ in sql.rows()]


def test_begin_and_end_at_offsets(sql: Sql, run: Run) -> None:
    """What lies behind the end is never read, in whatever run."""
    places = PLAIN | {
        "scan.startup.mode": "specific-offsets",
        "scan.startup.specific-offsets": "partition:0,offset:1",
        "scan.bounded.mode": "specific-offsets",
        "scan.bounded.specific-offsets": "partition:0,offset:4",
    }
    flow = sql.write("k BIGINT, a STRING", KEYED, "SELECT * FROM s", source_with=places)
    numbered(sql, 0, 3)
    run(flow)
    assert keys(sql) == [1, 2]
    numbered(sql, 3, 9)
    (*_, last) = run(flow)
    assert keys(sql) == [1, 2, 3]
    assert last.lag is not None
    assert last.lag.records == 0
    run(flow)
    assert keys(sql) == [1, 2, 3]


def test_partitions_that_are_not_named_are_not_read(sql: Sql, run: Run, topic: Topics) -> None:
    wide = Sql(sql.path, sql.kafka, topic(2), sql.target)
    ends = PLAIN | {
        "scan.bounded.mode": "specific-offsets",
        "scan.bounded.specific-offsets": "partition:1,offset:1",
    }
    flow = wide.write("k BIGINT, a STRING", KEYED, "SELECT * FROM s", source_with=ends)
    producer = Producer({"bootstrap.servers": sql.kafka.bootstrap})
    for partition in (0, 1, 1):
        producer.produce(wide.source, b'{"k":%d}' % partition, None, partition)
    assert producer.flush(60) == 0
    run(flow)
    assert keys(wide) == [1]


def test_an_end_at_a_time(sql: Sql, run: Run) -> None:
    now = int(time.time()) * 1000
    ends = PLAIN | {"scan.bounded.mode": "timestamp", "scan.bounded.timestamp-millis": f"{now + 3}"}
    flow = sql.write("k BIGINT, a STRING", KEYED, "SELECT * FROM s", source_with=ends)
    producer = Producer({"bootstrap.servers": sql.kafka.bootstrap})
    for n in range(1, 6):
        producer.produce(sql.source, b'{"k":%d}' % n, None, 0, timestamp=now + n)
        assert producer.flush(60) == 0
        run(flow)
    assert keys(sql) == [1, 2]


def test_a_begin_that_the_topic_does_not_have(sql: Sql, run: Run) -> None:
    begins = PLAIN | {
        "scan.startup.mode": "specific-offsets",
        "scan.startup.specific-offsets": "partition:7,offset:1",
    }
    flow = sql.write("k BIGINT, a STRING", KEYED, "SELECT * FROM s", source_with=begins)
    with pytest.raises(PermanentError, match="correct the offsets at which the flow begins"):
        run(flow)
