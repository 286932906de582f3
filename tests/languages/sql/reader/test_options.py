"""Options of tables, and SET: each works, is refused, or is noted; none is accepted in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dataflow_assets.connectors.kafka.sink.routing import last_changes
from dataflow_assets.connectors.kafka.values import Outgoing
from dataflow_assets.manifests.load import Loaded
from tests.languages.sql.reader.reading import (
    KEYED,
    PLAIN,
    SOURCE,
    TARGET,
    UPSERTS,
    findings,
    loaded,
    one,
    step,
)

INSERT = "INSERT INTO o SELECT a, b FROM s;"


def with_option(tmp_path: Path, key: str, value: str, *, upsert: bool = False) -> Loaded:
    """One flow whose source (or target, where `upsert`) has one option more."""
    more = f", '{key}' = '{value}'"
    if upsert:
        other = TARGET.replace("'value.format' = 'json'", f"'value.format' = 'json'{more}")
        return loaded(tmp_path, SOURCE, other, INSERT)
    return loaded(tmp_path, SOURCE.replace(PLAIN, f"{PLAIN}{more}"), TARGET, INSERT)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("properties.auto.offset.reset", "latest", "must be earliest: where the group has no"),
        ("properties.auto.offset.reset", "none", "must be earliest: where the group has no"),
        ("properties.allow.auto.create.topics", "no", "allowed: true, false"),
        ("properties.transaction.timeout.ms", "soon", "must be a duration"),
        ("scan.parallelism", "many", "must be a whole number"),
        ("scan.topic-partition-discovery.interval", "often", "must be a duration, like 500ms"),
        ("sink.delivery-guarantee", "atleast-once", "did you mean at-least-once?"),
        ("json.decode.json-parser.enabled", "maybe", "allowed: true, false"),
        ("json.map-null-key.mode", "DROP", "allowed: FAIL"),
        ("json.map-null-key.literal", "x", "belongs to the mode LITERAL"),
        ("sink.parallelism", "1.5", "must be a whole number"),
        ("sink.transaction-naming-strategy", "X", "allowed: INCREMENTING, POOLING"),
    ],
)
def test_a_value_that_does_not_work_is_refused(
    tmp_path: Path, key: str, value: str, says: str
) -> None:
    found = with_option(tmp_path, key, value)
    if key == "properties.transaction.timeout.ms":  # of those who write
        found = with_option(tmp_path, key, value, upsert=True)
    assert found.flows == ()
    (told,) = found.findings
    assert says in told.message


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("properties.isolation.level", "read_uncommitted", "has no effect: only committed"),
        ("properties.nonsense", "1", "has no effect: is not known here"),
        ("properties.key.deserializer", "x", "has no effect: it is set by the connector"),
        ("scan.parallelism", "2", "has no effect: each partition is read by a task"),
        ("sink.parallelism", "2", "has no effect: what a task has read"),
        ("sink.transactional-id-prefix", "x", "has no effect: transactional ids begin with"),
        ("sink.delivery-guarantee", "none", "`at-least-once` and `none` are served as"),
    ],
)
def test_a_value_without_effect_is_noted(tmp_path: Path, key: str, value: str, says: str) -> None:
    found = with_option(tmp_path, key, value)
    one(found)
    assert [hint.message for hint in found.hints if hint.message.startswith(says)]


def test_where_the_table_begins_is_not_said_by_the_client(tmp_path: Path) -> None:
    for option in ("'scan.startup.mode' = 'earliest-offset'", "'properties.group.id' = 'g'"):
        reset = "latest" if "startup" in option else "earliest"
        more = f"{PLAIN}, {option}, 'properties.auto.offset.reset' = '{reset}'"
        found = loaded(tmp_path, SOURCE.replace(PLAIN, more), TARGET, INSERT)
        one(found)
        said = [hint.message for hint in found.hints]
        assert said == (
            ["has no effect: the table says itself where it begins"] if reset == "latest" else []
        )


@pytest.mark.parametrize(
    ("rows", "interval", "freshness", "folded", "says"),
    [
        ("100", "5 min", 300, 100, ""),
        ("100", "1500", 1, 100, ""),
        ("0", "0", 10, 0, ""),
        ("0", "1s", None, None, "must be above zero too"),
        ("100", "0s", None, None, "must be above zero too"),
        ("100", "soon", None, None, "must be a duration"),
    ],
)
def test_the_buffer_of_an_upsert_table(
    tmp_path: Path, rows: str, interval: str, freshness: int | None, folded: int | None, says: str
) -> None:
    buffer = f"{KEYED}, 'sink.buffer-flush.max-rows' = '{rows}', 'sink.buffer-flush.interval' = "
    other = TARGET.replace(
        KEYED.replace("'t'", "'o'"), f"{buffer}'{interval}'".replace("'t'", "'o'")
    )
    found = loaded(tmp_path, SOURCE, other, INSERT)
    if folded is None:
        assert [says in each.message for each in found.findings] == [True]
        return
    flow = one(found)
    sink: Any = flow.branches[0].sink
    assert (flow.policies.freshness_seconds, sink.values.folded_keys) == (freshness, folded)
    set_ = "SET 'dataflow.freshness' = '7';"
    assert one(loaded(tmp_path, set_, SOURCE, other, INSERT)).policies.freshness_seconds == 7


def test_of_the_changes_of_a_key_the_last_one_is_kept() -> None:
    def change(key: bytes, value: bytes | None) -> Outgoing:
        return Outgoing("t", value, key)

    a1, b1, a2, c1, a3 = (change(k, v) for k, v in zip(b"abaca", b"12345", strict=True))  # type: ignore[arg-type]
    assert list(last_changes([a1, b1, a2, c1, a3], 9)) == [a3, b1, c1]
    assert list(last_changes([a1, b1, a2, c1, a3], 2)) == [a2, b1, c1, a3]


def test_lengths_are_enforced_where_the_setting_says_so(tmp_path: Path) -> None:
    table = TARGET.replace("v STRING", "v CHAR(3)")
    trims = "SET 'table.exec.sink.type-length-enforcer' = 'TRIM_PAD';"
    plain = step(one(loaded(tmp_path, SOURCE, table, INSERT))).plan.outputs[1]
    assert str(plain.expression.type) == "STRING"
    cut = step(one(loaded(tmp_path, trims, SOURCE, table, INSERT))).plan.outputs[1]
    assert str(cut.expression.type) == "CHAR(3)"
    found = loaded(tmp_path, trims.replace("TRIM_PAD", "ERROR"), SOURCE, table, INSERT)
    assert [each[3] for each in findings(found)] == ["allowed: IGNORE, TRIM_PAD"]


def test_an_upsert_table_has_no_place_to_begin_at(tmp_path: Path) -> None:
    more = f"{KEYED}, 'properties.auto.offset.reset' = 'latest'"
    found = loaded(tmp_path, UPSERTS.replace(KEYED, more), TARGET, "INSERT INTO o SELECT * FROM u")
    one(found)
    assert [hint.path for hint in found.hints] == ["auto.offset.reset"]


JDBC = (
    "CREATE TABLE p (k BIGINT, v STRING, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'jdbc', "
    "'url' = '{}', 'table-name' = 'shop.p'{});"
)


def test_a_table_of_jdbc_is_one_of_postgresql(tmp_path: Path) -> None:
    url = "jdbc:postgresql://h:5433/d?sslmode=require&reWriteBatchedInserts=true"
    more = ", 'username' = 'u@x', 'password' = '${env:P}', 'driver' = 'org.postgresql.Driver'"
    found = loaded(tmp_path, SOURCE, JDBC.format(url, more), "INSERT INTO p SELECT a, b FROM s")
    sink: Any = one(found).branches[0].sink
    dsn = sink.connection_string.get_secret_value()
    assert dsn == "postgresql://u%40x@h:5433/d?sslmode=require"
    assert sink.password_secret_ref.key == "P"
    assert (sink.table, sink.upsert_mode, sink.conflict_key) == ("shop.p", True, ("k",))
    assert sink.delete_mode == "hard"
    noted = [hint.message for hint in found.hints if hint.path == "url"]
    assert noted == ["its parameter reWriteBatchedInserts has no effect"]


def test_a_password_in_the_url_of_jdbc(tmp_path: Path) -> None:
    url = "jdbc:postgresql://h/d?user=u&password=p%26q"
    found = loaded(tmp_path, SOURCE, JDBC.format(url, ""), "INSERT INTO p SELECT a, b FROM s")
    sink: Any = one(found).branches[0].sink
    assert sink.password.get_secret_value() == "p&q"
    assert sink.connection_string.get_secret_value() == "postgresql://u@h/d"


@pytest.mark.parametrize(
    ("url", "more", "says"),
    [
        ("jdbc:mysql://h/d", "", "must be jdbc:postgresql://host:port/database; other databases"),
        ("jdbc:postgresql:d", "", "must be jdbc:postgresql://host:port/database; other databases"),
        ("jdbc:postgresql://h/d", ", 'tabel' = 'x'", "unknown option"),
        ("jdbc:postgresql://h/d", ", 'password' = '${vault:x}'", "the provider vault is not"),
    ],
)
def test_mistakes_in_a_table_of_jdbc(tmp_path: Path, url: str, more: str, says: str) -> None:
    found = loaded(tmp_path, SOURCE, JDBC.format(url, more), "INSERT INTO p SELECT a, b FROM s")
    assert found.flows == ()
    assert [each.message.startswith(says) for each in found.findings] == [True]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"startup.mode": "specific-offsets"}, "must be partition:0,offset:42"),
        (
            {"startup.mode": "specific-offsets", "startup.specific-offsets": "partition:0"},
            "must be partition:0,offset:42",
        ),
        (
            {
                "startup.mode": "specific-offsets",
                "startup.specific-offsets": "partition:0,offset:1;partition:0,offset:2",
            },
            "must be partition:0,offset:42",
        ),
        ({"startup.specific-offsets": "partition:0,offset:1"}, "is used only with scan.startup"),
        ({"bounded.timestamp-millis": "1"}, "is used only with scan.bounded.mode = timestamp"),
        ({"bounded.mode": "timestamp"}, "must be a number of milliseconds"),
        ({"bounded.mode": "group-offsets"}, "is where a flow begins: end at a time"),
        ({"bounded.mode": "latest"}, "did you mean latest-offset?"),
    ],
)
def test_mistakes_about_begin_and_end(tmp_path: Path, options: dict[str, str], says: str) -> None:
    more = "".join(f", 'scan.{key}' = '{value}'" for key, value in options.items())
    found = loaded(tmp_path, SOURCE.replace(PLAIN, f"{PLAIN}{more}"), TARGET, INSERT)
    assert found.flows == ()
    assert [says in each.message for each in found.findings] == [True]


def test_a_table_that_ends_at_the_latest_is_noted(tmp_path: Path) -> None:
    found = with_option(tmp_path, "scan.bounded.mode", "latest-offset")
    one(found)
    assert [hint.message[:40] for hint in found.hints] == [
        "each run reads what is there when the ru"
    ]


def test_an_option_of_a_format_is_read_by_the_name_of_the_format_alone(tmp_path: Path) -> None:
    """`format` and `value.format` are one; their options are not."""
    for key, other in (
        ("json.ignore-parse-errors", None),
        ("value.json.ignore-parse-errors", "json.ignore-parse-errors"),
    ):
        found = with_option(tmp_path, key, "true")
        said = [one.message for one in found.findings]
        assert said == ([f"has no effect here: write {other}"] if other else [])
