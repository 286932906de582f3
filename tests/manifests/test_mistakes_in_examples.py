"""One mistake in an example of each language: what `dataflow check` says leads to the fix."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree

import pytest

from dataflow_assets.manifests.load import load
from tests import ROOT

EXAMPLES = ROOT / "examples"
SQL, JUSTONE, PIPELINES = "sql/adults.sql", "justone/readings.properties", "pipelines/orders.sql"
TABLEFLOW = "tableflow/tableflow.yaml"
SELECTED = "SELECT id, UPPER(name), age FROM users WHERE age >= 18"
CONFIG = '"kinesis.region": "eu-central-1"\n'

MISTAKES = {
    "no comma behind a column": (
        SQL,
        "  id BIGINT,\n  name STRING,\n  age INT,\n  changed",
        "  id BIGINT\n  name STRING,\n  age INT,\n  changed",
        "expected , or ) behind a column, found name",
    ),
    "a port of its own": (
        JUSTONE,
        "db.host=127.0.0.1:15432",
        "db.host=127.0.0.1\ndb.port=15432",
        "write the port into db.host, as in host:5432",
    ),
    "a key that Flink does not enforce": (
        SQL,
        "PRIMARY KEY (id) NOT ENFORCED",
        "PRIMARY KEY (id)",
        "write PRIMARY KEY (...) NOT ENFORCED",
    ),
    "double quotes around a text": (SQL, "'users'", '"users"', "a text is written 'like this'"),
    "an interval without quotes": (
        SQL,
        "age >= 18;",
        "changed > CURRENT_TIMESTAMP - INTERVAL 5 MINUTE;",
        "is in quotes: write INTERVAL '5' MINUTE",
    ),
    "a place in the SELECT for a column": (
        SQL,
        SELECTED,
        "SELECT id, MAX(name), MAX(age) FROM users GROUP BY 1",
        "a number in GROUP BY is no place in the SELECT: write the column",
    ),
    "a topic of Kafka": (
        PIPELINES,
        "KAFKACONNECT 'kafka-connector'",
        "KAFKA 'broker:9092/orders'",
        "use the source kafka of a DataFlow manifest",
    ),
    "a table without the word": (
        PIPELINES,
        "BATCH_INTERVAL 1000\n",
        "BATCH_INTERVAL 1000\nINTO orders\n",
        "write INTO TABLE name or INTO PROCEDURE name",
    ),
    "a broker as text": (
        TABLEFLOW,
        "      - hostname: localhost\n        port: 9092\n",
        "      - localhost:9092\n",
        "must be a mapping, got text: write {hostname: broker, port: 9092}",
    ),
    "a bucket without its scheme": (
        TABLEFLOW,
        "s3://my-bucket-name",
        "my-bucket-name",
        "must be s3://bucket or file:///folder",
    ),
    "one id for two columns": (
        TABLEFLOW,
        "name: service, type: string, id: 2",
        "name: service, type: string, id: 1",
        "is also the id of a field in line 24",
    ),
    "a column too few": (
        JUSTONE,
        "longitude,acceleration\n",
        "longitude\n",
        "has 4 paths, and db.columns 3: one path for each column",
    ),
    "an argument by its name": (SQL, "UPPER(name)", "UPPER(a => name)", "are given without their"),
    "at least, the other way round": (SQL, "age >= 18", "age => 18", "at least is written >="),
    "two equal signs": (SQL, "age >= 18", "age == 18", "equality is written ="),
    "two colons": (SQL, "UPPER(name)", "name::STRING", "CAST(value AS type)"),
    "like in any case": (SQL, "age >= 18", "name ILIKE 'b%'", "LOWER(value) LIKE 'pattern'"),
    "a function of Oracle": (SQL, "UPPER(name)", "NVL(name, 'x')", "write COALESCE(a, b)"),
    "a function whose argument is no column": (
        SQL,
        SELECTED,
        "SELECT id, name, DATEADD(DAY, 1, changed) FROM users",
        "DATEADD is not supported; write TIMESTAMPADD(DAY, 1, a)",
    ),
    "a type of PostgreSQL": (SQL, "name STRING", "name TEXT", "TEXT is not a type; write STRING"),
    "half of a statement set": (SQL, "EXECUTE STATEMENT SET BEGIN", "BEGIN", "BEGIN STATEMENT SET"),
    "a variable of a shell": (SQL, "${env:SHOP_DATABASE}", "${SHOP_DATABASE}", "${env:VARIABLE}"),
    "no semicolon": (
        SQL,
        ");\n\nCREATE",
        ")\n\nCREATE",
        "put a `;` before CREATE: a statement begins here",
    ),
    "JSONPath": (JUSTONE, "/@identity,", "$.identity,", "$.a.b[0] is written /@a/@b/#0"),
    "columns without commas": (JUSTONE, "id,latitude", "id latitude", "separated by commas"),
    "a schema in the table": (
        JUSTONE,
        "db.table=readings",
        "db.table=public.readings",
        "write the schema in db.schema only",
    ),
    "a password that is a variable": (
        JUSTONE,
        "${env:SHOP_PASSWORD}",
        "$SHOP_PASSWORD",
        "a variable is written ${env:VARIABLE}",
    ),
    "an address for its parts": (
        JUSTONE,
        "db.database=shop\n",
        "db.url=jdbc:postgresql://pg:5433/shop\n",
        "is not a key of this connector: write db.host=pg:5433, db.database=shop",
    ),
    "an address in the host": (
        JUSTONE,
        "db.host=127.0.0.1:15432",
        "db.host=jdbc:postgresql://pg/shop",
        "is a whole address: write db.host=pg, db.database=shop",
    ),
    "two keys for the user": (
        JUSTONE,
        "db.database=shop\n",
        "db.database=shop\ndb.user=shop\n",
        "db.username is given too, and counts: remove this key",
    ),
    "a comma too many": (PIPELINES, CONFIG, CONFIG.replace("\n", ",\n"), "remove the comma"),
    "a comma too few": (PIPELINES, '"orders",', '"orders"', "a comma or a quote is missing"),
    "single quotes": (PIPELINES, '"orders",', "'orders',", "inside of it quotes are double ones"),
    "a city for a region": (PIPELINES, "eu-central-1", "Frankfurt", "the code of an AWS region"),
    "a unit": (PIPELINES, "1000", "1s", "milliseconds, without a unit: 1000 is a second"),
    "a key behind a point": (PIPELINES, "record::$data", "record.data", "column::key"),
    "a key that is a variable": (
        PIPELINES,
        "${env:ORDERS_ACCESS_KEY}",
        "${ORDERS_ACCESS_KEY}",
        "a variable is written ${env:VARIABLE}",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_the_message_leads_to_the_fix(tmp_path: Path, name: str) -> None:
    example, right, wrong, wanted = MISTAKES[name]
    folder = copytree((EXAMPLES / example).parent, tmp_path / "flows")
    file = folder / Path(example).name
    text = file.read_text(encoding="utf-8")
    assert right in text
    file.write_text(text.replace(right, wrong, 1))
    loaded = load(folder)
    said = [one.message for one in (*loaded.findings, *loaded.hints)]
    assert any(wanted in message for message in said), said
    assert len(loaded.findings) < 3, said


@pytest.mark.parametrize(
    ("example", "broken"),
    [(SQL, ("name STRING", "name TEXT")), (PIPELINES, ("FORMAT AVRO", "FORMAT CSV"))],
)
def test_what_cannot_be_read_is_reported_once(
    tmp_path: Path, example: str, broken: tuple[str, str]
) -> None:
    """That a table is missing, because its statement has a mistake, is no second mistake."""
    folder = copytree((EXAMPLES / example).parent, tmp_path / "flows")
    file = folder / Path(example).name
    file.write_text(file.read_text(encoding="utf-8").replace(*broken, 1))
    assert len(load(folder).findings) == 1


def test_a_variable_that_is_not_set_is_noted_at_the_key_that_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SHOP_PASSWORD", raising=False)
    lines = (EXAMPLES / JUSTONE).read_text(encoding="utf-8").splitlines()
    (hint,) = [one for one in load(EXAMPLES / "justone").hints if "SHOP_PASSWORD" in one.message]
    assert hint.path == "db.password"
    assert lines[hint.line - 1].startswith("db.password=")
