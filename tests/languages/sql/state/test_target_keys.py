"""Keys that a table finds equal and a query does not: refused at the start, or made equal."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

import devservers
from dataflow_assets.connectors.clickhouse.table import table as clickhouse
from dataflow_assets.connectors.postgresql.table import column as postgresql
from dataflow_assets.errors import PermanentError
from dataflow_assets.flow import Flow
from dataflow_assets.languages.sql.engine.expressions import FlinkColumn
from dataflow_assets.languages.sql.engine.plan import FlinkOutput
from dataflow_assets.languages.sql.engine.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INT,
    STRING,
    FlinkType,
)
from dataflow_assets.languages.sql.engine.values import Codec
from dataflow_assets.languages.sql.state.source import ViewSource
from dataflow_assets.languages.sql.state.target_keys import check, narrow
from dataflow_assets.runs.request import Report
from tests.languages.sql.files import Sql
from tests.languages.sql.test_rows import flow, table

Drain = Callable[[Flow], list[Report]]
FLOAT, MILLIS = FlinkType("FLOAT"), FlinkType("TIMESTAMP", 3)
CENTS = FlinkType("DECIMAL", 10, 2)
CHAR = FlinkType("CHAR", 3)
POSTGRESQL = {
    "text": ("text", "text"),
    "varchar(9)": ("varchar", "character varying(9)"),
    "char(9)": ("bpchar", "character(9)"),
    "citext": ("citext", "citext"),
    "name": ("name", "name"),
    "uuid": ("uuid", "uuid"),
    "jsonb": ("jsonb", "jsonb"),
    "int4": ("int4", "integer"),
    "int8": ("int8", "bigint"),
    "float4": ("float4", "real"),
    "float8": ("float8", "double precision"),
    "numeric": ("numeric", "numeric"),
    "numeric(9,2)": ("numeric", "numeric(9,2)"),
    "numeric(9)": ("numeric", "numeric(9,0)"),
    "date": ("date", "date"),
    "timestamp": ("timestamp", "timestamp without time zone"),
    "timestamp(0)": ("timestamp", "timestamp(0) without time zone"),
    "bytea": ("bytea", "bytea"),
    "bool": ("bool", "boolean"),
}
SAME = [
    (STRING, "text"), (STRING, "varchar(9)"), (INT, "int4"), (INT, "int8"), (BIGINT, "numeric"),
    (BIGINT, "text"), (INT, "float8"), (CENTS, "numeric"), (CENTS, "numeric(9,2)"), (CENTS, "text"),
    (DOUBLE, "float8"), (FLOAT, "float4"), (MILLIS, "timestamp"), (DATE, "date"), (BYTES, "bytea"),
    (BOOLEAN, "bool"), (CHAR, "char(9)"), (CHAR, "text"),
]  # fmt: skip
OTHER = [
    (STRING, "char(9)"), (STRING, "citext"), (STRING, "name"), (STRING, "uuid"), (STRING, "jsonb"),
    (STRING, "numeric"), (STRING, "int8"), (BIGINT, "float8"), (CENTS, "numeric(9)"),
    (CENTS, "int8"),
    (DOUBLE, "float4"), (MILLIS, "timestamp(0)"), (MILLIS, "date"), (CHAR, "citext"),
]  # fmt: skip
CLICKHOUSE = [
    (STRING, "String", True), (STRING, "LowCardinality(String)", True), (STRING, "UUID", False),
    (STRING, "FixedString(4)", False), (STRING, "IPv4", False), (CENTS, "Decimal(10, 2)", True),
    (CENTS, "Decimal(10, 1)", False), (MILLIS, "DateTime64(3)", True), (MILLIS, "DateTime", False),
    (DOUBLE, "Float64", True), (DOUBLE, "Float32", False), (INT, "Int64", True),
]  # fmt: skip


def tells_apart(kind: FlinkType, field: pa.Field, *, key: bool = True) -> bool:
    output = FlinkOutput(field.name, FlinkColumn(kind, 0), key=key)
    try:
        check([output], pa.schema([field]), "t")
    except PermanentError:
        return False
    return True


def of_postgresql(name: str, *, deterministic: bool = True) -> pa.Field:
    base, declared = POSTGRESQL[name]
    found = postgresql.PostgresqlColumn(
        "k", base, False, declared, -1, True, False, False, deterministic
    )
    return found.field


@pytest.mark.parametrize(("kind", "name"), [*SAME, *OTHER])
def test_a_column_of_postgresql(kind: FlinkType, name: str) -> None:
    assert tells_apart(kind, of_postgresql(name)) == ((kind, name) in SAME)
    assert tells_apart(kind, of_postgresql(name), key=False)


def test_a_collation_that_ignores_case() -> None:
    assert not tells_apart(STRING, of_postgresql("text", deterministic=False))


@pytest.mark.parametrize(("kind", "name", "same"), CLICKHOUSE)
def test_a_column_of_clickhouse(kind: FlinkType, name: str, *, same: bool) -> None:
    assert tells_apart(kind, clickhouse.Column("k", name).field()) == same


def test_a_negative_zero_is_the_key_that_zero_is() -> None:
    """Also inside of a row; other values stay as they are."""
    row = FlinkType("ROW", items=(DOUBLE, DOUBLE), names=("a", "b"))
    for kind, zero, other in ((DOUBLE, 0.0, -0.0), (row, [0.0, 1.0], [-0.0, 1.0])):
        codec = Codec([kind], keys=True)
        assert codec.pack([zero]) == codec.pack([other])
        assert Codec([kind]).pack([zero]) != Codec([kind]).pack([other])
    for value in (1.5, -1.5, float("inf"), None):
        codec = Codec([DOUBLE], keys=True)
        assert [*codec.unpack(codec.pack([value]))] == [value]


def test_groups_in_postgresql(
    sql: Sql,
    run: Drain,
    postgresql: devservers.PostgreSQL,
    schema: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 0.0 and -0.0 one row, which goes with the last record of both; citext is refused."""
    monkeypatch.setenv("DATAFLOW_FILES", str(tmp_path))
    source = "k BIGINT, d DOUBLE, g STRING, PRIMARY KEY (k) NOT ENFORCED"
    into = "{}, n BIGINT, PRIMARY KEY ({}) NOT ENFORCED"
    with psycopg.connect(postgresql.dsn(), autocommit=True) as link:
        link.execute(f"CREATE TABLE {schema}.d (d float8 PRIMARY KEY, n bigint)".encode())
        make = f"CREATE TABLE {schema}.g (g char(3) PRIMARY KEY, n bigint)"
        link.execute(make.encode())
        options = {"connector": "postgresql", "url": postgresql.dsn()}

        def flow(name: str, kind: str) -> Flow:
            query = f"SELECT {name}, COUNT(*) FROM s GROUP BY {name}"
            target = {**options, "table-name": f"{schema}.{name}"}
            return sql.write(source, into.format(f"{name} {kind}", name), query, target_with=target)

        zeros = [
            (b'{"k":%d}' % k, json.dumps({"k": k, "d": d}).encode())
            for k, d in enumerate([0.0, -0.0])
        ]
        sql.send(zeros)
        run(flow("d", "DOUBLE"))
        assert link.execute(f"SELECT * FROM {schema}.d".encode()).fetchall() == [(0.0, 2)]
        sql.send([(b'{"k":1}', None)])
        run(flow("d", "DOUBLE"))
        assert link.execute(f"SELECT * FROM {schema}.d".encode()).fetchall() == [(0.0, 1)]
        with pytest.raises(PermanentError, match=r"the column g of .*g may store values as equal"):
            run(flow("g", "STRING"))


@pytest.mark.parametrize(
    ("query", "filled"),
    [
        ("SELECT CAST(g AS CHAR(3)), n FROM s GROUP BY CAST(g AS CHAR(3)), n", True),
        ("SELECT DISTINCT h, n FROM (SELECT CAST(g AS CHAR(3)) AS h, n FROM s)", True),
        ("SELECT h, 1 FROM (SELECT DISTINCT CAST(g AS CHAR(3)) AS h, n FROM s) GROUP BY h", True),
        ("SELECT c, n FROM s GROUP BY c, n", False),
        ("SELECT CAST(c AS CHAR(3)), n FROM s GROUP BY CAST(c AS CHAR(3)), n", False),
        ("SELECT c, n FROM s WHERE CAST(g AS CHAR(3)) = 'a' GROUP BY c, n", False),
    ],
)  # fmt: skip
def test_a_char_is_filled_by_a_cast_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str, *, filled: bool
) -> None:
    """What a table declares as CHAR may have texts of any length."""
    monkeypatch.setenv("DATAFLOW_FILES", str(tmp_path))
    into = table("o", "h CHAR(3), n INT, PRIMARY KEY (h, n) NOT ENFORCED")
    if "GROUP BY h" in query:
        into = into.replace("(h, n)", "(h)")
    source = table("s", "g STRING, c CHAR(3), n INT")
    found = flow(tmp_path, source, into, f"INSERT INTO o {query};").source
    assert isinstance(found, ViewSource)
    (key, *_) = narrow(found.view)
    assert key.expression.type == (CHAR if filled else STRING)


def test_what_a_file_accepts_of_a_table_of_postgresql(
    sql: Sql,
    run: Drain,
    postgresql: devservers.PostgreSQL,
    schema: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cast makes texts equal that char(n) finds equal; of a uuid the error names a setting."""
    monkeypatch.setenv("DATAFLOW_FILES", str(tmp_path))
    source, counts = "g STRING, h STRING", "{}, n BIGINT, PRIMARY KEY (k) NOT ENFORCED"
    options = {"connector": "postgresql", "url": postgresql.dsn()}
    name = "0e37df36-f698-11e6-8dd4-cb9ced3df976"
    sql.send([(None, json.dumps({"g": g, "h": name}).encode()) for g in ("a", "a ", "b")])
    with psycopg.connect(postgresql.dsn(), autocommit=True) as link:

        def counted(kind: str, key: str, settings: str = "") -> dict[str, int]:
            link.execute(f"CREATE TABLE IF NOT EXISTS {schema}.{kind[:4]} (k {kind} PRIMARY KEY, "
                         "n bigint)".encode())  # fmt: skip
            query = f"SELECT {key}, COUNT(*) FROM s GROUP BY {key}"
            target = {**options, "table-name": f"{schema}.{kind[:4]}"}
            into = counts.format("k STRING")
            run(sql.write(source, into, query, settings, target_with=target))
            found = link.execute(f"SELECT k::text, n FROM {schema}.{kind[:4]}".encode())
            return dict(found.fetchall())

        with pytest.raises(PermanentError, match=r"or GROUP BY CAST\(\.\.\. AS CHAR\(n\)\)"):
            counted("char(3)", "g")
        assert counted("char(3)", "CAST(g AS CHAR(3))") == {"a": 2, "b": 1}
        with pytest.raises(PermanentError) as told:
            counted("uuid", "h")
        (accepted,) = re.findall(r"write (SET .*?;)", str(told.value))
        assert counted("uuid", "h", accepted) == {name: 3}
