"""What a manifest may say about a PostgreSQL source, and how it is called; no server is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from ruamel.yaml import YAML

from dataflow_assets.connectors.postgresql import PostgresqlSource
from dataflow_assets.manifests.load import load
from dataflow_assets.sdk.sql_table.positions import PolledPosition

URL = "postgresql://u:pw@db.example.org/shop"


def source(**options: Any) -> PostgresqlSource:
    return PostgresqlSource.model_validate({"connectionString": URL, **options})


def test_defaults_are_the_reference_s() -> None:
    found = source(table="orders")
    assert (found.poll_interval, found.read_batch_size) == (5, 0)
    assert (found.change_tracking_column, found.order_by_column) == ("updated_at", "id")
    assert (found.auto_create_table, found.overlap_seconds) == (False, 0)
    assert found.place() == ("public", "orders")
    assert found.traits.poll_seconds == 5
    assert found.traits.incremental
    assert "pw" not in repr(found)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "table or tableSecretRef is required"),
        ({"query": " ; "}, "query is empty"),
        ({"query": "SELECT 1", "overlapSeconds": 5}, "overlapSeconds needs changeTrackingColumn"),
        ({"table": "t", "orderByColumn": "a\x00b"}, "orderByColumn"),
        ({"table": "t", "pollInterval": -1}, "pollInterval"),
    ],
)
def test_what_contradicts_itself_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        source(**options)


def test_a_query_has_an_address_of_its_own() -> None:
    one, other = source(query="SELECT 1"), source(query="SELECT 2")
    assert str(one.address()).startswith("postgresql/db_example_org_shop/query_")
    assert one.address() != other.address()
    assert str(source(query="SELECT 1", table="a.b").address()).endswith("/a/b")


def test_what_is_read_again_needs_a_sink_that_upserts(tmp_path: Path) -> None:
    options = {"table": "t", "overlapSeconds": 60}
    sink: dict[str, Any] = {"connectionString": URL, "table": "target"}
    document: dict[str, Any] = {
        "apiVersion": "dataflow.dataflow.io/v1",
        "kind": "DataFlow",
        "metadata": {"name": "copy"},
        "spec": {
            "source": {"type": "postgresql", "config": {"connectionString": URL, **options}},
            "sink": {"type": "postgresql", "config": sink},
        },
    }
    file = tmp_path / "flow.yaml"
    YAML().dump(document, file)
    (finding,) = load(file).findings
    assert (
        "the source reads rows again with overlapSeconds: use a sink that upserts"
        in finding.message
    )
    sink |= {"upsertMode": True, "conflictKey": "id"}
    YAML().dump(document, file)
    assert load(file).findings == ()


def test_a_position_is_canonical_text() -> None:
    text = '{"change":"2026-01-02 03:04:05.678901+00","order":"7","state":"rows"}'
    assert PolledPosition.parse(text).dump() == text
    assert PolledPosition.parse(None).at_start
