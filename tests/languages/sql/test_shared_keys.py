"""Upserts of two tables into one topic, under keys that a constant keeps apart."""

from __future__ import annotations

import json
from dataclasses import replace

from dataflow_assets.manifests.load import load
from tests.conftest import Topics
from tests.drained import drained
from tests.languages.sql.files import Sent, Sql, latest

KEYED = "k BIGINT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED"
INTO = "kind STRING, k BIGINT, n BIGINT, PRIMARY KEY (kind, k) NOT ENFORCED"


def row(key: int, value: int | None) -> Sent:
    body = None if value is None else json.dumps({"k": key, "n": value}).encode()
    return json.dumps({"k": key}).encode(), body


def test_a_delete_of_one_table_leaves_the_row_of_the_other(sql: Sql, topic: Topics) -> None:
    other = replace(sql, source=topic())
    sql.write(KEYED, INTO, "SELECT 'a', k, n FROM s WHERE n > 0")
    second = f"CREATE TABLE u WITH ('topic' = '{other.source}') LIKE s;\n"
    second += "INSERT INTO o SELECT 'b', k, n FROM u;"
    sql.path.write_text(f"{sql.path.read_text()}\n{second}")
    flows = load(sql.path).flows
    sql.send([row(1, 10), row(2, 20), row(3, 30)])
    other.send([row(1, 11), row(2, 21)])
    for flow in flows:
        drained(flow)
    sql.send([row(1, None), row(2, 0), row(3, 31)])
    other.send([row(2, None)])
    for flow in flows:
        drained(flow)
    stored = latest(sql.stored())
    found = {tuple(json.loads(key or b"").values()): json.loads(one) for key, one in stored.items()}
    assert {key: one["n"] for key, one in found.items()} == {("a", 3): 31, ("b", 1): 11}
