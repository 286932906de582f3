"""The catalog of a location: what tables of Tableflow become in it, and mistakes by their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataflow_assets.languages.tableflow.declared_sinks import NessieTableSink, RestTableSink
from dataflow_assets.manifests.load import Loaded, load
from tests.languages.tableflow.test_document import BUCKET, FILE


def loaded(folder: Path, connections: str, text: str = FILE) -> Loaded:
    (folder / "connections.yaml").write_text(connections)
    (folder / "tableflow.yaml").write_text(text)
    return load(folder)


def test_a_table_is_in_the_catalog_and_in_the_folder_of_its_file(tmp_path: Path) -> None:
    text = "catalog: {type: nessie, config: {baseURL: 'https://n:19120', branch: dev}}\n"
    found = loaded(tmp_path, text)
    assert (found.findings, found.hints) == ((), ())
    sink = found.flows[0].branches[0].sink
    assert isinstance(sink, NessieTableSink)
    assert sink.identifier == ("warpstream", "_tableflow", "one+logs")
    assert sink.declaration.location == "s3://bucket/warpstream/_tableflow/one+logs"
    assert (sink.branch, sink.base_url) == ("dev", "https://n:19120")


def test_the_namespace_may_be_another_one(tmp_path: Path) -> None:
    config = "catalogURI: 'http://c:1', warehouse: w, namespace: a.b, s3Region: x"
    found = loaded(
        tmp_path,
        f"catalog: {{type: iceberg, config: {{{config}}}}}",
        FILE.replace(BUCKET, BUCKET.replace("bucket\n", "bucket?prefix=p\n")),
    )
    sink = found.flows[0].branches[0].sink
    assert isinstance(sink, RestTableSink)
    assert (sink.identifier, sink.warehouse) == (("a", "b", "one+logs"), "w")
    assert sink.location(sink.identifier) == "s3://bucket/p/warpstream/_tableflow/one+logs"


@pytest.mark.parametrize(
    ("catalog", "path", "message"),
    [
        ("x", "catalog", "must be {type, config}, got text"),
        ("{type: hive}", "catalog.type", "is required: allowed: iceberg, nessie"),
        ("{type: iceberg}", "catalog.config.catalogURI", "catalogURI is required"),
        ("{type: iceberg, uri: x}", "catalog.uri", "unknown key"),
        (
            "{type: iceberg, config: {catalogURI: 'http://c', table: x}}",
            "catalog.config.table",
            "must be left out: the files say what their tables are like",
        ),
        (
            "{type: nessie, config: {baseURL: 'http://n', upsertMode: true}}",
            "catalog.config.upsertMode",
            "must be left out: the files say what their tables are like",
        ),
        ("{type: nessie, config: {baseUrl: 'http://n'}}", "catalog.config.baseUrl", "unknown key"),
    ],
)
def test_a_mistake_has_its_place(tmp_path: Path, catalog: str, path: str, message: str) -> None:
    found = loaded(tmp_path, f"catalog: {catalog}\n")
    named = [(one.path, one.message) for one in found.findings]
    assert any(at == path and said.startswith(message) for at, said in named), named
    wrong = "the catalog of connections.yaml has a mistake: correct it, or take it out"
    assert ("document", wrong) in named
    assert found.flows == ()


def test_a_location_has_one_catalog(tmp_path: Path) -> None:
    """The table would be in either, by chance."""
    (tmp_path / "more").mkdir()
    other = "catalog: {type: nessie, config: {baseURL: 'http://other'}}\n"
    (tmp_path / "more" / "connections.yaml").write_text(other)
    found = loaded(tmp_path, other.replace("other", "n"))
    assert [one.message for one in found.findings] == [
        "connections.yaml files of this location name several catalogs: keep one"
    ]
    assert found.flows == ()


def test_a_folder_of_the_disk_is_no_place_for_a_table_of_a_catalog(tmp_path: Path) -> None:
    text = FILE.replace("s3://bucket", f"file://{tmp_path}/lake")
    found = loaded(tmp_path, "catalog: {type: nessie, config: {baseURL: 'http://n'}}\n", text)
    (finding,) = found.findings
    assert finding.path == "destination_bucket_url"
    assert finding.message.startswith("must be s3://bucket: the tables are in the catalog")
    assert found.flows == ()
