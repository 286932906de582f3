"""Columns that a followed table gets, loses or renames while it is followed: `schemaChanges`."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from dataflow_assets import registry
from dataflow_assets.contracts import Limit, Rejects
from dataflow_assets.errors import PermanentError
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.manifests.load import load
from dataflow_assets.records.chain import Transformation
from dataflow_assets.transforms.router import Router
from tests.connectors.clickhouse.system import Clickhouse
from tests.connectors.iceberg.system import Iceberg
from tests.connectors.nessie.system import Nessie
from tests.connectors.postgresql.cdc.followed import UPSERTED, Elsewhere, Followed
from tests.systems import System

ADD = {"schemaChanges": "add"}
CHANGE = """
UPDATE source SET name = 'before' WHERE id = 1;
ALTER TABLE source ADD COLUMN price numeric(8,2), ADD COLUMN tags text[];
UPDATE source SET name = 'after', price = 1.25, tags = '{a,b}' WHERE id = 2;
INSERT INTO source VALUES (4, 'new', 7.5, NULL);
DELETE FROM source WHERE id = 3;
"""


@pytest.fixture
def table(followed: Followed) -> Followed:
    followed.make("id int PRIMARY KEY, name text")
    followed.run("INSERT INTO source VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    followed.drain()
    return followed


def _types(followed: Followed, table: str = "target") -> list[tuple[str, str]]:
    return followed.run(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        f"{followed.schema}.{table}",
    )


def test_a_column_that_is_added_is_in_the_target_with_its_type(table: Followed) -> None:
    table.options = ADD
    table.run(CHANGE)
    table.drain()
    assert table.same()
    assert _types(table) == _types(table, "source")
    assert _types(table)[2:] == [("price", "numeric(8,2)"), ("tags", "text[]")]
    assert table.drain() == 0


@pytest.mark.crash
@pytest.mark.parametrize(
    "failpoint",
    [
        "drain.new-columns",
        "drain.columns-added",
        pytest.param("postgresql-cdc.read", marks=pytest.mark.full),
        pytest.param("postgresql.before-commit", marks=pytest.mark.full),
        "postgresql.after-commit",
    ],
)
def test_a_kill_at_the_moment_of_the_change(followed: Followed, failpoint: str) -> None:
    """Every change once, in order: by a target that all of them are appended to."""
    followed.run("CREATE TABLE source (id int PRIMARY KEY, name text)")
    followed.run("CREATE TABLE target (n bigserial, id int, name text)")
    followed.sink_options, followed.options = {}, ADD
    followed.drain()
    followed.run("INSERT INTO source VALUES (1, 'a'), (2, 'b')")
    followed.run("ALTER TABLE source ADD COLUMN price int")
    followed.run("UPDATE source SET price = 10 * id WHERE id = 2")
    followed.run("INSERT INTO source VALUES (3, 'c', 30)")
    assert followed.killed_at(failpoint)
    followed.drain()
    found = followed.run("SELECT id, name, price FROM target ORDER BY n")
    assert found == [(1, "a", None), (2, "b", None), (2, "b", 20), (3, "c", 30)]
    assert followed.drain() == 0


def test_a_target_without_the_column_stops_the_flow_with_the_statement(table: Followed) -> None:
    table.run(CHANGE)
    with pytest.raises(PermanentError, match="target lacks: price, tags") as caught:
        table.drain()
    assert table.rows() == [(1, "a"), (2, "b"), (3, "c")]
    _, _, statement = str(caught.value).partition("run: ")
    table.run(statement)
    table.drain()
    assert table.same()


FILLED = """
ALTER TABLE source ADD region varchar(50) NOT NULL DEFAULT 'UN''KNOWN', ADD n int DEFAULT 7,
ADD ok boolean DEFAULT true, ADD at timestamptz DEFAULT '2026-01-02 03:04:05+00',
ADD tags text[] DEFAULT '{a,"b c"}', ADD plain int,
ADD since timestamptz DEFAULT now(), ADD day date DEFAULT CURRENT_DATE;
UPDATE source SET name = 'after', n = NULL WHERE id = 2; INSERT INTO source VALUES (4, 'new', 'EU')
"""


@pytest.mark.parametrize("rule", ["fail", "add"])
def test_rows_that_no_change_has_touched_get_the_value_of_a_new_column_too(
    table: Followed, rule: str
) -> None:
    """The server fills them when the column is added, and logs none of it.

    It computes now() once, for the statement: that is one value too.
    """
    table.options = {"schemaChanges": rule}
    table.run(FILLED)
    if rule == "fail":
        with pytest.raises(PermanentError, match="target lacks: at, day, n, ok, plain") as caught:
            table.drain()
        table.run(str(caught.value).partition("run: ")[2])
    table.drain()
    assert table.same("id, name, region, n, ok, at, tags, plain, since, day")


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE source ADD n timestamptz DEFAULT clock_timestamp()",
        "ALTER TABLE source ADD n bigserial",
        "ALTER TABLE source ADD n int DEFAULT 7, ALTER name TYPE varchar(9)",
    ],
)
def test_values_that_the_server_does_not_know_any_more_are_not_there(
    table: Followed, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Where it has written the table anew."""
    table.options = ADD
    table.run(change)
    table.run("UPDATE source SET name = 'x' WHERE id = 1; INSERT INTO source VALUES (4, 'd')")
    table.drain()
    changed = "WHERE id IN (1, 4) ORDER BY id"
    found = table.run(f"SELECT * FROM target {changed}")
    assert found == table.run(f"SELECT * FROM source {changed}")
    assert table.run("SELECT n FROM target WHERE id IN (2, 3)") == [(None,), (None,)]
    assert "have no values in them" in caplog.text


def test_a_target_that_cannot_fill_its_rows_stops_the_flow(
    followed: Followed, request: pytest.FixtureRequest
) -> None:
    target = Clickhouse(request)
    config = target.at("sink", {"autoCreateTable": True, **(Clickhouse.upsert or {})})
    sink = registry.sinks()["clickhouse"].model_validate(config)
    flow = Elsewhere(followed.dsn, followed.schema, followed.engine, dict(ADD), into=sink)
    flow.run("CREATE TABLE source (id int PRIMARY KEY, name text)")
    flow.run("INSERT INTO source VALUES (1, 'a')")
    flow.drain()
    flow.run("ALTER TABLE source ADD n int DEFAULT 7; INSERT INTO source VALUES (2, 'b', 8)")
    with pytest.raises(PermanentError, match=r"does not have: n \('7'\).*ADD COLUMN"):
        flow.drain()


def test_new_columns_are_left_out_where_the_manifest_says_so(table: Followed) -> None:
    table.options = {"schemaChanges": "ignore"}
    table.run(CHANGE)
    table.drain()
    assert table.rows() == [(1, "before"), (2, "after"), (4, "new")]


@pytest.mark.parametrize("rule", ["fail", "add"])
def test_a_column_that_was_renamed_is_not_added(table: Followed, rule: str) -> None:
    table.options = {"schemaChanges": rule}
    table.run("ALTER TABLE source RENAME name TO title; UPDATE source SET title = 'x' WHERE id = 1")
    reason = "if the column was renamed, rename name to title" if rule == "add" else "lacks: title"
    with pytest.raises(PermanentError, match=reason):
        table.drain()
    assert _types(table) == [("id", "integer"), ("name", "text")]
    table.run("ALTER TABLE target RENAME name TO title")
    table.drain()
    assert table.same()


def test_a_column_that_was_added_with_a_value_is_not_added_again_under_another_name(
    table: Followed,
) -> None:
    """The server keeps the value of old rows with the column, and the target has its default."""
    table.options = ADD
    table.run("ALTER TABLE source ADD status text DEFAULT 'new'")
    table.run("INSERT INTO source VALUES (4, 'd')")
    table.drain()
    table.run("UPDATE source SET status = 'paid' WHERE id < 4")
    table.drain()
    table.run("ALTER TABLE source RENAME status TO state; INSERT INTO source VALUES (5, 'e')")
    with pytest.raises(PermanentError, match="rename status to state"):
        table.drain()
    table.run("ALTER TABLE target RENAME status TO state")
    table.drain()
    assert table.same()


def test_rows_before_a_new_column_get_its_value_too(table: Followed) -> None:
    """They are stored when the target has the column: its default, left there, is their value."""
    table.options = ADD
    table.run("INSERT INTO source VALUES (4, 'd'); UPDATE source SET name = 'x' WHERE id = 1")
    table.run("ALTER TABLE source ADD status text DEFAULT 'new'")
    table.run("INSERT INTO source VALUES (5, 'e')")
    table.drain()
    assert table.same()


def test_a_column_that_was_dropped_stays_as_it_was(table: Followed) -> None:
    table.options = ADD
    table.run("ALTER TABLE source ADD extra int; UPDATE source SET extra = id")
    table.drain()
    table.run("ALTER TABLE source DROP name; UPDATE source SET extra = 10 * id WHERE id < 3")
    table.drain()
    assert table.rows() == [(1, "a", 10), (2, "b", 20), (3, "c", 3)]


def test_a_column_of_another_type_is_stored_where_its_values_fit(table: Followed) -> None:
    table.run("ALTER TABLE source ADD n int; ALTER TABLE target ADD n int")
    table.run("ALTER TABLE source ALTER n TYPE bigint; UPDATE source SET n = 5 WHERE id = 1")
    table.drain()
    table.run("UPDATE source SET n = 5000000000 WHERE id = 2")
    with pytest.raises(PermanentError, match="column n: 5000000000 is not a valid int32"):
        table.drain()
    table.run("ALTER TABLE target ALTER n TYPE bigint")
    table.drain()
    assert table.same()


def test_the_columns_of_a_first_load_are_added_too(followed: Followed) -> None:
    followed.run("CREATE TABLE source (id int PRIMARY KEY, name text, price numeric(8,2))")
    followed.run("CREATE TABLE target (id int PRIMARY KEY, name text)")
    followed.run("INSERT INTO source SELECT i, repeat('x', 500), i FROM generate_series(1, 900) i")
    followed.options, followed.sink_options = ADD, {}
    followed.limit = Limit(bytes=64 * 1024)
    assert followed.drain() == 900
    assert followed.same()


class Routed(Followed):
    """Orders go to `target`, their items by a route to `items_copy`: rows are JSON on their way."""

    @property
    def flow(self) -> Flow:
        condition = f"metadata.table == '{self.schema}.items'"
        config = {"connectionString": self.dsn, "table": f"{self.schema}.items_copy", **UPSERTED}
        sink = registry.sinks()["postgresql"].model_validate(config)
        route = {"condition": condition, "sink": {"type": "postgresql", "config": config}}
        steps = (Transformation(Router.model_validate({"routes": [route]})),)
        branches = (*super().flow.branches, Branch(sink, routes=(condition,)))
        return replace(super().flow, branches=branches, transformations=steps)


@pytest.mark.parametrize("rule", ["add", "ignore"])
def test_a_column_reaches_the_target_of_its_table_only(followed: Followed, rule: str) -> None:
    two = Routed(followed.dsn, followed.schema, followed.engine)
    tables = [f"{two.schema}.source", f"{two.schema}.items"]
    two.options, two.rejects = {"tables": tables, "schemaChanges": rule}, Rejects("fail")
    two.make("id int PRIMARY KEY, name text")
    two.run("CREATE TABLE items (id int PRIMARY KEY, of int)")
    two.run("CREATE TABLE items_copy (LIKE items INCLUDING ALL)")
    two.run("INSERT INTO source VALUES (1, 'a'); INSERT INTO items VALUES (1, 1), (2, 1)")
    two.drain()
    two.run("UPDATE source SET name = 'b'; ALTER TABLE items ADD price numeric(8,2)")
    two.run("UPDATE items SET price = 2.5 WHERE id = 2; INSERT INTO source VALUES (2, 'c')")
    two.drain()
    assert two.same()
    assert _types(two) == _types(two, "source")
    if rule == "add":
        assert two.rows("items_copy") == two.rows("items")
        assert _types(two, "items_copy") == _types(two, "items")
    else:
        assert two.rows("items_copy") == [(1, 1), (2, 1)]


@pytest.mark.parametrize(
    "system", [Clickhouse, Iceberg, pytest.param(Nessie, marks=pytest.mark.full)]
)
def test_a_column_is_added_to_targets_of_other_systems(
    followed: Followed, request: pytest.FixtureRequest, system: type[System]
) -> None:
    target = system(request)
    config = target.at("sink", {"autoCreateTable": True, **(system.upsert or {})})
    sink = registry.sinks()[system.type].model_validate(config)
    flow = Elsewhere(followed.dsn, followed.schema, followed.engine, dict(ADD), into=sink)
    flow.run("CREATE TABLE source (id int PRIMARY KEY, name text)")
    flow.run("ALTER TABLE source REPLICA IDENTITY FULL")
    flow.run("INSERT INTO source VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    flow.drain()
    assert set(target.declared(config)) >= {"id", "name"}
    flow.run(
        "UPDATE source SET name = 'before' WHERE id = 1; "
        "ALTER TABLE source ADD ok boolean, ADD price numeric(8,2); "
        "UPDATE source SET ok = true, price = 1.25 WHERE id = 2; "
        "INSERT INTO source VALUES (4, 'new', false, 7.5)"
    )
    flow.drain()
    found = sorted((row["id"], row["name"], row["ok"], row["price"]) for row in target.rows(config))
    assert found == [
        (1, "before", None, None),
        (2, "b", True, Decimal("1.25")),
        (3, "c", None, None),
        (4, "new", False, Decimal("7.50")),
    ]
    assert flow.drain() == 0


MANIFEST = """
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata: {{name: orders}}
spec:
  source:
    type: postgresql-cdc
    config:
      connectionString: postgresql://h/d
      slotName: s
      publicationName: p
      tables: [orders]
      {option}
  sink:
    type: {type}
    config: {config}
"""
TRINO = "{serverURL: 'http://t:8080', catalog: c, schema: s, table: t}"


@pytest.mark.parametrize(
    ("option", "kind", "config", "reason"),
    [
        ("schemaChanges: add", "trino", TRINO, "a trino sink cannot add columns to its table"),
        (
            "schemaChanges: add",
            "postgresql",
            "{connectionString: 'postgresql://h/d', table: t, unknownFields: ignore}",
            "leave one of the two out",
        ),
        (
            "schemaChanges: ignore",
            "kafka",
            "{brokers: ['h:9092'], topic: t}",
            "as includeColumns",
        ),
        (
            "snapshotMode: always",
            "postgresql",
            "{connectionString: 'postgresql://h/d', table: t}",
            "reads rows again with snapshotMode: always",
        ),
        ("schemaChanges: add", "kafka", "{brokers: ['h:9092'], topic: t}", ""),
    ],
)
def test_what_a_sink_cannot_do_is_said_when_the_manifest_is_loaded(
    tmp_path: Path, option: str, kind: str, config: str, reason: str
) -> None:
    path = tmp_path / "flow.yaml"
    path.write_text(MANIFEST.format(option=option, type=kind, config=config))
    findings = load([path]).findings
    assert bool(findings) == bool(reason), findings
    assert reason in " ".join(map(str, findings))


INSERTED = "[{type: insertField, config: {staticField: id, staticValue: x}}]"
KEYED = "{connectionString: 'postgresql://h/d', table: t, upsertMode: true, conflictKey: [id, Day]}"


@pytest.mark.parametrize(
    ("option", "steps", "left_out"),
    [
        ("excludeColumns: [ID, name]", "", "id"),
        ("includeColumns: [name]", "", "id, Day"),
        ("includeColumns: [id, day]", "", ""),
        ("{excludeColumns: [id], envelopeFormat: debezium}", "", ""),
        ("excludeColumns: [id]", INSERTED, ""),
        ("excludeColumns: [id]", "[{type: filter, config: {condition: 'has(name)'}}]", "id"),
    ],
)  # fmt: skip
def test_a_key_that_the_source_leaves_out_is_a_finding(
    tmp_path: Path, option: str, steps: str, left_out: str
) -> None:
    lines = option.strip("{}").replace(", env", "\n      env")
    text = MANIFEST.format(option=lines, type="postgresql", config=KEYED)
    path = tmp_path / "flow.yaml"
    path.write_text(text + (f"  transformations: {steps}\n" if steps else ""))
    found = [str(one) for one in load([path]).findings if "leaves out" in str(one)]
    assert len(found) == bool(left_out)
    assert all(f"names {left_out}, which the source leaves out" in one for one in found)
    assert all("conflictKey" in one for one in found)


def test_a_slot_is_read_by_one_flow_only(tmp_path: Path) -> None:
    """Each would move it past what the other one has not read."""
    sink = "{connectionString: 'postgresql://h/d', table: t}"
    text = MANIFEST.format(option="", type="postgresql", config=sink)
    for name, slot in (("orders", "s"), ("copied", "s"), ("other", "t")):
        manifest = text.replace("name: orders", f"name: {name}").replace(
            "slotName: s", f"slotName: {slot}"
        )
        (tmp_path / f"{name}.yaml").write_text(manifest)
    findings = load([tmp_path]).findings
    assert sorted(Path(one.file).name for one in findings) == ["copied.yaml", "orders.yaml"]
    assert all("slot s of h_d is also read by the flow in" in str(one) for one in findings)
