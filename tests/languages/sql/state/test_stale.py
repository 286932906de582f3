"""Rows of the target that only the state before had, found without servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from dataflow_assets.languages.sql.engine.changes import kept_rows
from dataflow_assets.languages.sql.engine.values import pack
from dataflow_assets.languages.sql.engine.view import ViewPlan
from dataflow_assets.languages.sql.state import tables
from dataflow_assets.languages.sql.state.digests import digests
from dataflow_assets.languages.sql.state.hops import hops
from dataflow_assets.languages.sql.state.manifest import (
    Manifest,
    StateFile,
    StateTable,
    new_manifest,
)
from dataflow_assets.languages.sql.state.output import DELETED, OutputRow
from dataflow_assets.languages.sql.state.source import ViewSource
from dataflow_assets.languages.sql.state.states import stale_rows
from dataflow_assets.manifests.load import load
from dataflow_assets.testing import choose

LEVELS = 12
OPTIONS = (
    "'properties.bootstrap.servers' = 'k:9092', 'connector' = 'upsert-kafka', 'key.format' = "
    "'json', 'value.format' = 'json'"
)


@pytest.fixture
def view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ViewPlan:
    """A query of nested groups."""
    monkeypatch.setenv("DATAFLOW_FILES", str(tmp_path))
    query = "SELECT g, COUNT(*) AS n FROM s GROUP BY g"
    for _ in range(LEVELS - 1):
        query = f"SELECT g, SUM(n) AS n FROM ({query}) GROUP BY g"
    file = tmp_path / "one.sql"
    file.write_text(
        f"CREATE TABLE s (g STRING, PRIMARY KEY (g) NOT ENFORCED) WITH ('topic' = 's', {OPTIONS});"
        "CREATE TABLE o (g STRING, n BIGINT, PRIMARY KEY (g) NOT ENFORCED) WITH "
        f"('topic' = 'o', {OPTIONS}); INSERT INTO o {query};"
    )
    source = choose(load(file), None).source
    assert isinstance(source, ViewSource)
    return source.view


def _manifest(view: ViewPlan, name: str) -> Manifest:
    """A state with a file for each table."""
    found = {
        hop.table: StateTable((StateFile(f"{name}/{hop.table}", 1, 1, ""),)) for hop in hops(view)
    }
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return new_manifest(**asdict(digests(view)), number=1, at=at, offsets={}, tables=found)


def _groups(*names: str) -> pa.Table:
    """What is kept of groups, each with its row."""
    rows = {pack([one]): pack([1, b'{"g":"%s","n":1}' % one.encode()]) for one in names}
    return tables.touch(kept_rows(rows), 0)


def test_the_last_of_many_stages_has_the_rows_of_the_target(view: ViewPlan) -> None:
    """Ten and more stages: they are in the order of their numbers."""
    last = f"groups-{LEVELS - 1}"
    kept: Mapping[str, pa.Table] = {f"old/{last}": _groups("x", "y"), f"new/{last}": _groups("y")}

    def read(file: StateFile) -> pa.Table:
        return kept.get(file.name, _groups("of another stage", file.name))

    found = stale_rows(view, _manifest(view, "new"), [_manifest(view, "old")], read)
    assert list(found) == [OutputRow(b'{"g":"x"}', DELETED)]
