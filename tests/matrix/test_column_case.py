"""`columnNames: ignoreCase`: keys and columns whose capitals differ from those of the target."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dataflow_assets import registry
from dataflow_assets.connectors.memory import Store
from dataflow_assets.errors import PermanentError
from dataflow_assets.manifests.load import load
from dataflow_assets.testing import choose
from tests.connectors.postgresql.system import Postgresql
from tests.flows import SYSTEMS, manifest, messages
from tests.matrix.test_matrix import ordered, run, upsert_of
from tests.systems import Change, Config, Row

SINKS = [name for name, one in registry.sinks().items() if "column_names" in one.model_fields]


class Target:
    """A table with the columns `id` and `n`, which flows fill."""

    def __init__(
        self, sink_type: str, request: pytest.FixtureRequest, engine: SparkSession, folder: Path
    ) -> None:
        self.store: Store = request.getfixturevalue("store")
        self.engine, self.folder, self.type = engine, folder, sink_type
        self.sink = SYSTEMS[sink_type](request)
        upsert = upsert_of(self.sink) or {}
        self.config = self.sink.at("sink", {"autoCreateTable": True, **upsert})
        self.fill({"id": 1, "n": 10}, {"id": 2, "n": 20})

    def fill(self, *bodies: Row, **more: Any) -> None:
        """By a flow of its own, from a topic."""
        self.store.query("delete from messages")
        self.store.produce("t", 0, [json.dumps(body).encode() for body in bodies])
        self.run(messages(self.store), **more)

    def run(self, source: tuple[str, Config], **more: Any) -> None:
        file = manifest(self.folder, source, (self.type, {**self.config, **more}))
        run(choose(load(file), None), self.engine)

    @property
    def rows(self) -> Sequence[Any]:
        return ordered(self.sink.rows(self.config))


@pytest.fixture(params=SINKS)
def target(request: pytest.FixtureRequest, engine: SparkSession, tmp_path: Path) -> Target:
    return Target(request.param, request, engine, tmp_path)


def test_table_sinks_have_the_option() -> None:
    assert {"postgresql", "clickhouse", "iceberg", "mysql", "nessie", "trino"} == {*SINKS}


def test_keys_fill_the_column_that_differs_in_case_alone(target: Target) -> None:
    target.fill(
        {"ID": 3, "N": 30},
        {"Id": 4, "n": 40},
        {"id": 2, "N": 21},
        {"iD": 5},
        columnNames="ignoreCase",
    )
    wanted = [{"id": 1, "n": 10}, {"id": 2, "n": 21}, {"id": 3, "n": 30}, {"id": 4, "n": 40}]
    assert target.rows == ordered([*wanted, {"id": 5, "n": None}])


def test_names_are_exact_unless_they_are_said_not_to_be(target: Target) -> None:
    with pytest.raises(PermanentError, match="unknown field `N`"):
        target.fill({"id": 3, "N": 30})


def test_columns_of_tables_are_found_too(target: Target, request: pytest.FixtureRequest) -> None:
    source = Postgresql(request)
    read = source.at("source", {"orderByColumn": "ID"})
    given = [{"ID": 2, "N": 21}, {"ID": 3, "N": 30}]
    source.change(read, [Change("insert", row) for row in given])
    target.run(("postgresql", read), columnNames="ignoreCase")
    wanted = [{"id": 1, "n": 10}, {"id": 2, "n": 21}, {"id": 3, "n": 30}]
    assert target.rows == ordered(wanted)
