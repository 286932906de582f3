"""Targets that the sink's statements cannot write to are refused when the flow opens."""

from __future__ import annotations

from typing import Any

import pytest

import devservers
from dataflow_assets.connectors.postgresql import PostgresqlSink
from dataflow_assets.contracts import DELETE, OP, Run, Target
from dataflow_assets.errors import PermanentError
from tests.connectors.postgresql.driver import TARGET, Place, store

UPSERT = {"upsertMode": True, "conflictKey": "id"}
TRIGGER = """
CREATE FUNCTION put() RETURNS trigger LANGUAGE plpgsql SET search_path TO "{schema}" AS
$$ BEGIN INSERT INTO base VALUES (NEW.id); RETURN NEW; END $$;
CREATE TRIGGER put INSTEAD OF INSERT ON orders FOR EACH ROW EXECUTE FUNCTION put()
"""


@pytest.fixture
def place(postgresql: devservers.PostgreSQL, schema: str) -> Place:
    return Place(postgresql.dsn(), schema)


@pytest.mark.parametrize(
    ("made", "options", "words"),
    [
        ("VIEW orders AS SELECT * FROM base", {}, "is a view, and COPY.*name the table behind it"),
        ("VIEW orders AS SELECT * FROM base", UPSERT, "is a view: it has no unique index"),
        ("MATERIALIZED VIEW orders AS SELECT * FROM base", {}, "is a materialized view"),
        (
            "MATERIALIZED VIEW orders AS SELECT * FROM base",
            {"autoCreateTable": True},
            "is a materialized view, which only REFRESH fills: name a table",
        ),
        ("SEQUENCE orders", {"autoCreateTable": True}, "is a sequence: name a table"),
        ("TYPE orders AS (id int)", {"autoCreateTable": True}, "is a composite type"),
        ("INDEX orders ON base (id)", {}, "is an index"),
    ],
)
def test_what_is_no_table_is_refused(
    place: Place, made: str, options: dict[str, Any], words: str
) -> None:
    place.run(f"CREATE TABLE base (id int PRIMARY KEY); CREATE {made}")
    with pytest.raises(PermanentError, match=words):
        place.sink(**options).open(TARGET, Run())


def test_a_view_with_a_trigger_takes_rows(place: Place) -> None:
    place.run("CREATE TABLE base (id int); CREATE VIEW orders AS SELECT * FROM base")
    place.run(TRIGGER.format(schema=place.schema))
    store(place.sink(), [{"id": 1}]).close()
    assert place.rows(table="base") == [(1,)]
    place.run("DROP TRIGGER put ON orders")
    with pytest.raises(PermanentError, match="only by a trigger INSTEAD OF INSERT"):
        place.sink().open(TARGET, Run())


def test_a_table_with_row_policies_is_upserted_or_refused(place: Place) -> None:
    role = f"r{place.schema}"
    place.run(
        "CREATE TABLE orders (id int PRIMARY KEY); ALTER TABLE orders ENABLE ROW LEVEL SECURITY; "
        f"CREATE POLICY few ON orders USING (id < 10); CREATE ROLE {role} LOGIN; "
        f"GRANT ALL ON SCHEMA {place.schema} TO {role}; GRANT ALL ON orders TO {role}"
    )
    there = Place(place.dsn.replace("//postgres@", f"//{role}@"), place.schema)
    with pytest.raises(PermanentError, match=r"row policies of .*BYPASSRLS.*upsertMode: true"):
        there.sink().open(TARGET, Run())
    store(there.sink(**UPSERT), [{"id": 1}, {"id": 11}, {"id": 2}]).close()
    assert place.rows() == [(1,), (2,)]
    place.run(f"ALTER ROLE {role} BYPASSRLS")
    store(there.sink(), [{"id": 12}]).close()
    assert place.rows() == [(1,), (2,), (12,)]
    place.run(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


def test_what_a_row_lacks_is_judged_by_the_stored_row_under_row_policies(place: Place) -> None:
    role = f"r{place.schema}"
    place.run(
        "CREATE TABLE orders (id int PRIMARY KEY, a int, w text); "
        "ALTER TABLE orders ENABLE ROW LEVEL SECURITY; CREATE POLICY own ON orders USING (w = 'x');"
        f"CREATE ROLE {role} LOGIN; GRANT ALL ON SCHEMA {place.schema} TO {role}; "
        f"GRANT ALL ON orders TO {role}"
    )
    there = Place(place.dsn.replace("//postgres@", f"//{role}@"), place.schema)
    session = store(there.sink(**UPSERT), [{"id": 1, "a": 1, "w": "x"}])
    store(there.sink(**UPSERT), [{"id": 1, "a": 2}, {"id": 2, "a": 3}], session=session).close()
    assert place.rows() == [(1, 2, "x")]
    assert [row[0] for row in place.rejected()] == [2]
    place.run(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


@pytest.mark.parametrize("side", ["refers", "is referred to"])
def test_a_foreign_key_between_targets_of_one_flow_is_named(place: Place, side: str) -> None:
    place.run("CREATE TABLE base (id int PRIMARY KEY)")
    place.run("CREATE TABLE orders (id int PRIMARY KEY, c int CONSTRAINT fk REFERENCES base)")
    place.run("INSERT INTO base VALUES (1); INSERT INTO orders VALUES (1, 1)")
    other = Target(TARGET.flow, "postgresql:base", "m1", "orders")
    sinks = {
        TARGET: place.sink(**UPSERT),
        other: Place(place.dsn, place.schema, "base").sink(**UPSERT),
    }
    if side == "refers":
        _open(sinks[other], other)
        store(sinks[TARGET], [{"id": 2, "c": 2}]).close()
        expected = f"{place.schema}.base is a target of this flow too"
    else:
        place.table = "base"
        _open(place.sink(table=f"{place.schema}.orders", **UPSERT), other)
        store(place.sink(deleteMode="hard", **UPSERT), [{"id": 1, OP: DELETE}]).close()
        expected = f"{place.schema}.orders is a target of this flow too"
    ((_, _, _, reason, _),) = place.rejected()
    assert "23503, constraint fk" in reason
    assert expected in reason


def _open(sink: PostgresqlSink, target: Target) -> None:
    """The other branch, which has its checkpoint in the same schema."""
    session = sink.open(target, Run())
    session.restart({"0": 0}, "t1")
    session.close()


def test_a_foreign_key_to_a_table_of_nobody_is_told_as_the_server_does(place: Place) -> None:
    place.run("CREATE TABLE base (id int PRIMARY KEY)")
    place.run("CREATE TABLE orders (id int, c int CONSTRAINT fk REFERENCES base)")
    store(place.sink(), [{"id": 2, "c": 2}]).close()
    assert place.rejected()[0][3].endswith("(23503, constraint fk)")
