"""What a query makes of one message, without a broker."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.errors import RejectedRecord
from dataflow_assets.flow import Flow
from dataflow_assets.manifests.load import load
from dataflow_assets.records.record import Record, parse
from dataflow_assets.records.step import Context
from dataflow_assets.testing import choose

Ask = Callable[..., Any]
BROKERS = "'properties.bootstrap.servers' = 'k:9092'"
KEYED = "k BIGINT, a STRING, PRIMARY KEY (k) NOT ENFORCED"
NOW = datetime(2026, 7, 20, 10, tzinfo=UTC)


def table(name: str, columns: str, **options: str) -> str:
    """A declaration with brokers and formats; underscores of options are dots."""
    given = {"topic": name}
    if "PRIMARY KEY" in columns:
        given |= {"connector": "upsert-kafka", "key.format": "json", "value.format": "json"}
    else:
        given |= {"connector": "kafka", "format": "json"}
    given |= {key.replace("_", "."): value for key, value in options.items()}
    said = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
    return f"CREATE TABLE {name} ({columns}) WITH ({said}, {BROKERS});"


def flow(tmp_path: Path, *statements: str) -> Flow:
    path = tmp_path / "one.sql"
    path.write_text("\n".join(statements))
    return choose(load(path), None)


def rows(given: Flow, value: bytes | None, key: bytes | None = None, now: datetime = NOW) -> Any:
    """The body that comes out, `("delete", body)` of a delete, or None."""
    source = given.source
    assert isinstance(source, KafkaSource)
    form = source.message_format()
    assert form is not None
    texts = form.texts(pa.array([value], pa.binary()))
    keys = form.keys(pa.array([key], pa.binary())).texts.to_pylist()
    assert texts.refused == {}
    metadata = {"key": (keys[0] or b"").decode()}
    apply = given.transformations[0].step.compile(Context(now))
    found = apply(Record(parse(texts.texts.to_pylist()[0]), metadata))
    assert not isinstance(found, list)
    if found is None:
        return None
    deletes = found.metadata.get("operation") == "delete"
    return ("delete", found.body) if deletes else found.body


@pytest.mark.parametrize(
    ("where", "key", "passes"),
    [
        ("k > 1", 1, False),
        ("k > 1", 2, True),
        ("k > 1 AND a <> 'x'", 1, False),
        ("k > 1 AND a <> 'x'", 2, True),
        ("k > 1 AND UNIX_TIMESTAMP() > 100", 1, False),
        ("k > 1 AND UNIX_TIMESTAMP() > 100", 2, True),
        ("k < UNIX_TIMESTAMP()", 5, True),
        ("CURRENT_DATE < DATE '1970-01-01'", 5, True),
        ("10 / k > 1", 0, True),
        ("k > 1 OR a = 'x'", 1, True),
    ],
)
def test_a_delete_passes_unless_the_key_alone_says_that_nothing_was_written(
    tmp_path: Path, where: str, key: int, *, passes: bool
) -> None:
    """What was written while the condition held must go, whatever the time is now."""
    text = f"INSERT INTO o SELECT * FROM s WHERE {where}"
    found = flow(tmp_path, table("s", KEYED), table("o", KEYED), text)
    early = datetime(1970, 1, 1, tzinfo=UTC)
    deleted = rows(found, None, b'{"k":%d}' % key, early)
    assert deleted == (("delete", {"k": key}) if passes else None)


@pytest.mark.parametrize("kind", ["TINYINT", "SMALLINT", "INT", "BIGINT"])
def test_a_number_of_a_billion_digits_is_refused_before_it_is_written_out(
    tmp_path: Path, kind: str
) -> None:
    column = f"a {kind}"
    given = flow(tmp_path, table("s", column), table("o", column), "INSERT INTO o SELECT a FROM s;")
    for number in (b"1e999999999", b"-7E+99999999"):
        with pytest.raises(RejectedRecord, match="beyond the range"):
            rows(given, b'{"a":%s}' % number)
    assert rows(given, b'{"a":1e-999999999}') == {"a": 0}


def test_an_argument_that_overflows_the_common_type_makes_the_greatest_null(
    tmp_path: Path,
) -> None:
    columns, into = "a DECIMAL(38, 0)", "a DECIMAL(38, 1), b DECIMAL(38, 1)"
    query = "INSERT INTO o SELECT GREATEST(a, 1.5), LEAST(a, 1.5) FROM s;"
    given = flow(tmp_path, table("s", columns), table("o", into), query)
    assert rows(given, b'{"a":%d}' % (9 * 10**37)) == {"a": None, "b": None}


@pytest.mark.parametrize("kind", ["INT", "BIGINT", "DECIMAL(10, 2)", "DOUBLE"])
@pytest.mark.parametrize("text", ["1_000", "1__0", "0x10", "1 0"])
def test_a_text_that_is_a_number_for_python_alone_is_none(
    tmp_path: Path, kind: str, text: str
) -> None:
    column = f"a {kind}"
    given = flow(tmp_path, table("s", column), table("o", column), "INSERT INTO o SELECT a FROM s;")
    with pytest.raises(RejectedRecord, match="number"):
        rows(given, b'{"a":"%s"}' % text.encode())
    assert rows(given, b'{"a":" 7 "}')["a"] == 7
