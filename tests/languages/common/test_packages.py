"""What a manifest needs installed: named in one sentence, and nothing else stops."""

from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from dataflow_assets.languages.common import packages
from dataflow_assets.manifests import file_reading
from dataflow_assets.manifests.load import load
from tests import ROOT

FLOW = """\
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata:
  name: orders
spec:
  source:
    type: kafka
    config: { brokers: ["nowhere:9092"], topic: orders, consumerGroup: orders }
  sink:
    type: clickhouse
    config: { connectionString: "clickhouse://nowhere/shop", table: orders }
"""


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str | None]]:
    """Versions that differ from what is installed; None where a package is not."""
    real, known = metadata.version, dict[str, str | None]()

    def version(name: str) -> str:
        found = known.get(name, "real")
        if found is None:
            raise metadata.PackageNotFoundError(name)
        return real(name) if found == "real" else found

    monkeypatch.setattr(metadata, "version", version)
    packages.missing.cache_clear()
    file_reading._parse.cache_clear()
    yield known
    packages.missing.cache_clear()
    file_reading._parse.cache_clear()


def said(path: Path) -> list[str]:
    return [f"{found.line} {found.path}: {found.message}" for found in load(path).findings]


def test_a_missing_client_is_named_with_the_command_that_installs_it(
    tmp_path: Path, installed: dict[str, str | None]
) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text(FLOW)
    installed["clickhouse-connect"] = None
    (only,) = said(file)
    assert only == (
        "10 spec.sink.type: clickhouse needs clickhouse-connect (not installed): pip install "
        "'dataflow-assets[clickhouse]', then start Dagster, or the command, again"
    )


def test_a_client_that_is_too_old_is_named_with_both_versions(
    tmp_path: Path, installed: dict[str, str | None]
) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text(FLOW)
    installed["confluent-kafka"] = "2.3.0"
    (only,) = said(file)
    assert only.startswith(
        "7 spec.source.type: kafka needs confluent-kafka<3,>=2.16 (installed is 2.3.0): pip "
        "install 'dataflow-assets[kafka]'"
    )


def test_another_extra_that_an_extra_names_counts(installed: dict[str, str | None]) -> None:
    installed["pyiceberg-core"] = None
    assert packages.missing("nessie") == ("pyiceberg-core<0.11,>=0.10.1",)


@pytest.mark.parametrize(
    ("path", "package", "extra"),
    [
        ("examples/tableflow/tableflow.yaml", "pyiceberg", "iceberg"),
        ("examples/justone", "confluent-kafka", "kafka"),
    ],
)
def test_files_of_other_products_say_so_too(
    path: str, package: str, extra: str, installed: dict[str, str | None]
) -> None:
    installed[package] = None
    assert any(f"pip install 'dataflow-assets[{extra}]'" in one for one in said(ROOT / path))


def test_a_sink_connector_needs_the_client_of_its_address(
    tmp_path: Path, installed: dict[str, str | None]
) -> None:
    (tmp_path / "worker.properties").write_text("bootstrap.servers=nowhere:9092\ngroup.id=c\n")
    (tmp_path / "orders.properties").write_text(
        "connector.class=io.confluent.connect.jdbc.JdbcSinkConnector\nname=orders\n"
        "topics=orders\nconnection.url=jdbc:mariadb://db/shop\nconnection.user=me\n"
    )
    installed["PyMySQL"] = None
    assert any("pip install 'dataflow-assets[mysql]'" in one for one in said(tmp_path))


def test_every_connector_has_an_extra_of_its_name() -> None:
    from dataflow_assets import registry

    known = set(metadata.metadata(packages.NAME).get_all("Provides-Extra") or ())
    named = {n for n, one in {**registry.sources(), **registry.sinks()}.items() if not one.double}
    assert {canonicalize_name(one) for one in named} <= {canonicalize_name(one) for one in known}
