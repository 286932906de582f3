"""Files of the other four languages that nobody should write: real ones, with parts changed."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from tests import ROOT
from tests.stress.hostile_manifests import KEYS, NAMES, SOUP, VALUES, Text, encoded

EXAMPLES = ROOT / "examples"
FLINK = """
CREATE TABLE clicks (
  id BIGINT, who ROW<name STRING, tags ARRAY<STRING>>, n DECIMAL(10, 2), at TIMESTAMP_LTZ(3),
  seen AS PROCTIME(), WATERMARK FOR at AS at - INTERVAL '5' SECOND
) WITH ('connector' = 'kafka', 'topic' = 'clicks', 'properties.bootstrap.servers' = 'h:9092',
  'format' = 'json', 'scan.startup.mode' = 'earliest-offset', 'json.ignore-parse-errors' = 'true');
CREATE TABLE per_minute (w TIMESTAMP(3), name STRING, n BIGINT, PRIMARY KEY (w, name) NOT ENFORCED)
WITH ('connector' = 'clickhouse', 'connectionString' = 'clickhouse://h:9000/d', 'table' = 'm');
CREATE TABLE lake (id BIGINT, n DECIMAL(10, 2)) WITH ('connector' = 'iceberg',
  'catalogURI' = 'http://h:8181', 'namespace' = 'a.b', 'table' = 'lake', 's3.endpoint' = 'x',
  'basicAuth.username' = 'u', 'columns.id' = 'long', 'write.upsert.enabled' = 'true');
CREATE TABLE shop (id BIGINT, who STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'jdbc', 'url' = 'jdbc:postgresql://h/d', 'table-name' = 's.t', 'username' = 'u');
CREATE VIEW named AS SELECT id, who.name AS name, CAST(n AS STRING) AS n, at FROM clicks;
INSERT INTO per_minute SELECT window_start, name, COUNT(DISTINCT id)
FROM TABLE(TUMBLE(TABLE named, DESCRIPTOR(at), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end, name HAVING COUNT(*) > 1;
INSERT INTO lake SELECT id, n * 2 FROM clicks WHERE who.name LIKE 'a%' AND n BETWEEN 1 AND 2.5;
INSERT INTO shop SELECT id, COALESCE(JSON_VALUE(tag, '$.a'), 'x') FROM clicks
CROSS JOIN UNNEST(who.tags) AS t (tag);
"""
PIPELINES = """
CREATE TABLE users (id INT PRIMARY KEY, data JSON, status AS data::$status PERSISTED TEXT);
DELIMITER //
CREATE OR REPLACE PROCEDURE keep(batch QUERY(id INT, data JSON)) AS
BEGIN INSERT INTO users (id, data) SELECT id, data FROM batch; END //
DELIMITER ;
CREATE PIPELINE p AS LOAD DATA KAFKACONNECT 'x' CONFIG '{"connector.class": "a.B", "topic": "t"}'
CREDENTIALS '{"k": "v"}' INTO PROCEDURE keep FORMAT JSON (id <- id, data <- %);
START PIPELINE p;
"""
OPTIONS = (
    *("s3.endpoint", "a.b.c", "table.x", "connector", "columns.id", "", ".", "..", "a.", ".a"),
    *("properties.x", "properties.sasl.jaas.config", "format", "key.format", "path", "basicAuth"),
    *(
        "basicAuth.username.x",
        "table",
        "upsertMode",
        "conflictKey",
        "sink.parallelism",
        "warehouse",
    ),
)
WORDS = (
    *("SELECT", "FROM", "(", ")", ",", ";", "'", '"', "`", "*", "NULL", "CASE", "END", "AS", "."),
    *(
        "INSERT INTO",
        "WITH (",
        "UNION ALL",
        "GROUP BY",
        "OVER (",
        "INTERVAL",
        "CAST(",
        "ROW(",
        "::",
    ),
    *(
        "EXECUTE STATEMENT SET BEGIN",
        "CREATE VIEW v AS",
        "--",
        "/*",
        "<-",
        "%",
        "[1]",
        "1e999",
        "-",
    ),
    *(
        "MAP['a', 1]",
        "ARRAY[]",
        "TUMBLE(",
        "DESCRIPTOR(",
        "LIKE",
        "IF NOT EXISTS",
        "//",
        "DELIMITER",
    ),
)
_TOKEN = re.compile(r"'(?:[^']|'')*'|\w+|\s+|.", re.DOTALL)


@cache
def _flink() -> tuple[str, ...]:
    return (FLINK, (EXAMPLES / "sql/adults.sql").read_text(encoding="utf-8"))


@cache
def _pipelines() -> tuple[str, ...]:
    return (PIPELINES, (EXAMPLES / "pipelines/orders.sql").read_text(encoding="utf-8"))


@cache
def _properties() -> tuple[str, ...]:
    files = ("readings", "worker")
    return tuple((EXAMPLES / f"justone/{one}.properties").read_text("utf-8") for one in files)


@cache
def _tableflow() -> str:
    return (EXAMPLES / "tableflow/tableflow.yaml").read_text(encoding="utf-8")


def flink(rng: random.Random) -> Text:
    """A script of Flink with other parts."""
    return Text(encoded(_changed(rng, _flink())).content, "a.sql")


def pipelines(rng: random.Random) -> Text:
    """A script of SingleStore with other parts."""
    return Text(encoded(_changed(rng, _pipelines())).content, "a.sql")


def properties(rng: random.Random) -> Text:
    """A connector's or a worker's file with other lines, or the same as JSON."""
    lines = rng.choice(_properties()).splitlines()
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(len(lines))
        key, _, value = lines[at].partition("=")
        lines[at] = rng.choice(
            (
                f"{key}={rng.choice((*VALUES, *NAMES))}",
                f"{rng.choice((*KEYS, *OPTIONS))}={value}",
                f"{lines[at]}\n{lines[at]}",
                f"{lines[at]}\\",
                lines[at][rng.randrange(len(lines[at]) + 1) :],
                f"{key} : \\u{rng.randrange(0x10000):04x}{value}",
                rng.choice(SOUP),
                "",
            )
        )
    if rng.random() < 0.25:
        pairs = (line.partition("=") for line in lines if "=" in line and line[0] != "#")
        config: dict[str, Any] = {
            key: rng.choice((value, value, value, 1, None, [], {})) for key, _, value in pairs
        }
        whole = {"name": "a", "config": config} if rng.random() < 0.5 else config
        return Text(encoded(json.dumps(whole)).content, "a.yaml")
    return Text(encoded("\n".join(lines)).content, "a.properties")


def tableflow(rng: random.Random) -> Text:
    """Tableflow's example with other keys, values and lines."""
    lines = _tableflow().splitlines()
    for _ in range(rng.randrange(1, 5)):
        at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
        value = rng.choice((*VALUES, *NAMES, "struct", "list", "map", "int", "json", "inline"))
        lines[at] = rng.choice(
            (
                re.sub(r": [^,}{]*", f": {value}".replace("\\", r"\\"), lines[at], count=1),
                re.sub(r"\w+:", f"{rng.choice(KEYS)}:", lines[at], count=1),
                lines[other],
                lines[at][1:],
                f"  {lines[at]}",
                "",
            )
        )
    return encoded("\n".join(lines))


def _changed(rng: random.Random, scripts: Sequence[str]) -> str:
    parts = _TOKEN.findall(rng.choice(scripts))
    for _ in range(rng.randrange(1, 5)):
        at, other = rng.randrange(len(parts)), rng.randrange(len(parts))
        new = rng.choice((f"'{rng.choice(OPTIONS)}'", rng.choice(VALUES), rng.choice(NAMES)))
        parts[at] = rng.choice(
            (parts[other], "", new, new, rng.choice(WORDS), parts[at] * 2, f"{rng.choice(WORDS)} ")
        )
    if rng.random() < 0.1:
        parts.insert(rng.randrange(len(parts)), rng.choice(("(", "-", "NOT ", "a.")) * 3_000)
    text = "".join(parts)
    return text[: rng.randrange(len(text))] if rng.random() < 0.1 else text
