"""Tables in the catalog of the location: Nessie, with the file's field ids, read by path too."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

import devservers
from dataflow_assets.errors import PermanentError
from dataflow_assets.flow import Flow
from dataflow_assets.manifests.load import load
from dataflow_assets.manifests.stored_tables import compare
from dataflow_assets.runs.request import Report
from tests.conftest import Topics
from tests.drained import drain_apart
from tests.languages.tableflow.files import CLUSTER, FIELDS, Bucket, Tableflow
from tests.languages.tableflow.test_tables import IDS, NESTED, ROW, STORED, WIDER, _duckdb, _ids

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]
Run = Callable[[Flow], list[Report]]
NAMESPACE = ("warpstream", "_tableflow")


@pytest.fixture
def stored(
    tmp_path: Path, kafka: devservers.Kafka, topic: Topics, s3: Bucket, nessie: devservers.Nessie
) -> Tableflow:
    """A file beside a connections.yaml with a catalog; the bucket is one that Nessie may use."""
    folder = f"s3://{nessie.store.bucket}"
    bucket = Bucket(f"{folder}/{tmp_path.name}", s3.properties)
    catalog = {"type": "nessie", "config": {"baseURL": nessie.uri}}
    (tmp_path / "connections.yaml").write_text(json.dumps({"catalog": catalog}))
    name, url = topic(2), f"{folder}?prefix={tmp_path.name}"
    return Tableflow(tmp_path / "tableflow.yaml", kafka.bootstrap, name, bucket, url=url)


def table(file: Tableflow, catalog: Catalog, suffix: str = "") -> Any:
    return catalog.load_table((*NAMESPACE, f"{file.name}{suffix}"))


def test_a_table_of_the_catalog_has_the_ids_and_the_folder_of_the_file(
    stored: Tableflow, kafka: devservers.Kafka, run: Run, nessie_catalog: Catalog
) -> None:
    """And readers who know the folder alone see the same rows, after each commit."""
    flow = stored.write(fields=NESTED)
    for number in (1, 2):
        stored.produce(kafka, [ROW | {"id": number}])
        run(flow)
        by_path = sorted(stored.rows(), key=lambda row: row["id"])
        assert by_path == [STORED | {"id": one} for one in range(1, number + 1)]
    found = table(stored, nessie_catalog)
    assert _ids(found) == IDS
    assert found.location() == f"{stored.bucket.url}/warpstream/_tableflow/{stored.name}"
    assert sorted(row["id"] for row in found.scan().to_arrow().to_pylist()) == [1, 2]
    query = f"SELECT id, device.ratio FROM iceberg_scan('{found.location()}') ORDER BY 1"
    assert _duckdb(stored.bucket).sql(query).fetchall() == [(1, 0.5), (2, 0.5)]


def test_the_table_of_the_catalog_follows_the_file(
    stored: Tableflow, kafka: devservers.Kafka, run: Run, nessie_catalog: Catalog
) -> None:
    stored.produce(kafka, [{"id": 1, "name": "a"}, b"no json"])
    stored.produce(kafka, [{"id": number} for number in range(2, 12)])
    run(stored.write(fields=FIELDS))
    assert len(table(stored, nessie_catalog, "_rejected").scan().to_arrow()) == 1
    stored.produce(kafka, [{"id": 2**40, "price": 0.5}])
    run(stored.write(fields=WIDER))
    rows = sorted(stored.rows(), key=lambda row: row["id"])
    assert [row["id"] for row in rows] == [*range(1, 12), 2**40]
    assert rows[-1] == {"id": 2**40, "name": None, "price": 0.5}
    assert _ids(table(stored, nessie_catalog)) == {"id": 3, "name": 7, "price": 5}
    stored.write(fields=WIDER[::-1])
    found = compare(load(stored.path))
    assert found.flows == ()
    assert found.findings[0].message.startswith("price is in another place than in the table")
    with pytest.raises(PermanentError, match="cannot be changed to what is declared"):
        run(stored.write())


def test_nothing_is_lost_or_doubled_where_it_is_killed(
    stored: Tableflow, kafka: devservers.Kafka, run: Run, nessie_catalog: Catalog
) -> None:
    """Also between a commit and the hint for readers by path."""
    stored.write()
    steps = ("iceberg.before-commit:kill:1", "iceberg.after-commit:kill:3")
    for number, step in enumerate(steps):
        stored.produce(kafka, [{"id": 10 * number + one} for one in range(10)])
        assert drain_apart(str(stored.path), failpoint=step) == -9
    run(stored.write())
    stored.produce(kafka, [{"id": 20}])
    run(stored.write())
    assert sorted(row["id"] for row in stored.rows()) == [*range(21)]
    assert len(table(stored, nessie_catalog).scan().to_arrow()) == 21


def test_a_folder_with_a_table_is_not_taken(
    stored: Tableflow, kafka: devservers.Kafka, run: Run
) -> None:
    """One that a flow without a catalog has made there."""
    catalog = stored.path.parent / "connections.yaml"
    text = catalog.read_text()
    catalog.unlink()
    stored.produce(kafka, [{"id": 1}])
    run(stored.write())
    catalog.write_text(text)
    with pytest.raises(PermanentError, match="holds a table of a flow that had no catalog"):
        run(stored.write())
    assert [row["id"] for row in stored.rows()] == [1]


def test_a_removed_table_is_named_with_its_catalog(
    stored: Tableflow, kafka: devservers.Kafka, run: Run, nessie: devservers.Nessie
) -> None:
    stored.produce(kafka, [{"id": 1}])
    run(stored.write())
    document = json.loads(stored.path.read_text())
    stored.path.write_text(json.dumps(document | {"tables": []}))
    notes = [one.message for one in compare(load(stored.path)).hints]
    (found,) = (one for one in notes if f"{CLUSTER}+{stored.topic} is in no" in one)
    assert f"{stored.name} and in {nessie.uri}" in found
