"""The original documentation's manifests run as written: hosts, names and credentials aside.

Those for Kafka's security, and for tables with queries of their own, run beside the tests of their
connectors.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import psycopg
import pytest
import requests
from pyspark.sql import SparkSession
from ruamel.yaml import YAML

from dataflow_assets.manifests.load import load
from dataflow_assets.testing import choose
from tests import ROOT
from tests.connectors.iceberg.system import Iceberg
from tests.connectors.nessie.system import Nessie
from tests.connectors.trino.system import Trino
from tests.docs.test_examples import End, placed
from tests.manifests.test_seeds import REFUSED, SEEDS
from tests.matrix.test_matrix import run
from tests.systems import Change, Row

HERE = (
    "clickhouse-to-clickhouse.yaml",
    "iceberg-sink-columns.yaml",
    "iceberg-sink.yaml",
    "kafka-to-iceberg-flat.yaml",
    "kafka-to-nessie.yaml",
    "kafka-to-trino.yaml",
    "nessie-sink.yaml",
    "nessie-source.yaml",
    "postgresql-cdc-source.yaml",
    "postgresql-sink-raw.yaml",
    "postgresql-sink.yaml",
    "secrets-postgresql-sink.yaml",
    "secrets-postgresql.yaml",
)
ELSEWHERE = {
    "clickhouse-sink": "connectors/clickhouse/test_seeds.py",
    "clickhouse-source": "connectors/clickhouse/test_flows.py",
    "iceberg-source": "connectors/iceberg/test_source_flows.py",
    "kafka-sasl-plaintext": "connectors/kafka/security/test_flows.py",
    "kafka-sasl-ssl": "connectors/kafka/security/test_flows.py",
    "kafka-to-clickhouse": "connectors/clickhouse/test_seeds.py",
    "postgresql-migration": "connectors/postgresql/test_seeds_postgresql.py",
    "postgresql-source": "connectors/postgresql/test_seeds_postgresql.py",
    "trino-sink": "connectors/trino/test_seeds_trino.py",
    "trino-source": "connectors/trino/test_seeds_trino.py",
    "secrets-kafka": "connectors/kafka/security/test_flows.py",
    "secrets-kafka-tls": "connectors/kafka/security/test_flows.py",
}
ROWS = 20


def test_every_manifest_that_is_valid_runs_somewhere() -> None:
    valid = {name for name, findings in REFUSED.items() if not findings}
    assert valid == {name.removesuffix(".yaml") for name in HERE} | {*ELSEWHERE}
    texts = {name: (ROOT / "tests" / test).read_text() for name, test in ELSEWHERE.items()}
    assert [name for name, text in texts.items() if name not in text] == []


@pytest.mark.parametrize("name", HERE)
def test_the_manifest_runs(
    name: str,
    request: pytest.FixtureRequest,
    engine: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DATAFLOW_SECRET_NAMESPACES", "shared-secrets")
    yaml = YAML()
    documents: list[dict[str, Any]] = list(yaml.load_all(SEEDS / name))
    (document,) = (one for one in documents if one["kind"] == "DataFlow")
    document["metadata"]["name"] = f"seed-{uuid.uuid4().hex[:8]}"
    written = {role: dict(document["spec"][role]["config"]) for role in ("source", "sink")}
    source, sink = (placed(documents, document, role, request) for role in ("source", "sink"))
    for role, end in (("source", source), ("sink", sink)):
        _authenticate(end, document["spec"][role]["config"], written[role])
    source.change([Change("insert", {"id": n, "name": f"order {n}"}) for n in range(ROWS)])
    if not written["sink"].get("autoCreateTable"):
        _create(sink)
    yaml.dump_all(documents, tmp_path / name)
    flow = choose(load(tmp_path / name), None)
    assert run(flow, engine) == ROWS
    raw = written["sink"].get("rawMode", False)
    assert sorted(_id(row, raw=raw) for row in sink.rows()) == list(range(ROWS))
    assert run(flow, engine) == 0


def _authenticate(end: End, config: dict[str, Any], written: dict[str, Any]) -> None:
    """In the way that the manifest has written, where its place would choose another one."""
    if isinstance(end.system, Trino) and "keycloak" in written:
        config["keycloak"] = written["keycloak"]
    if not isinstance(end.system, Iceberg) or isinstance(end.system, Nessie):
        return
    if "bearerToken" in written:
        key, secret = config.pop("oauth2ClientID"), config.pop("oauth2ClientSecret")
        config["bearerToken"] = _token(config["catalogURI"], key, secret)


def _token(catalog: str, key: str, secret: str) -> str:
    form = {
        "grant_type": "client_credentials",
        "client_id": key,
        "client_secret": secret,
        "scope": "catalog",
    }
    answer = requests.post(f"{catalog}/v1/oauth/tokens", data=form, timeout=30)
    return str(answer.json()["access_token"])


def _create(sink: End) -> None:
    """The table that the documentation takes for granted."""
    if isinstance(sink.system, Trino):
        sink.system.execute(f"CREATE TABLE {sink.config['table']} (id bigint, name varchar)")
        return
    with psycopg.connect(sink.config["connectionString"], autocommit=True) as connection:
        connection.execute(
            f"CREATE TABLE {sink.config['table']} (id bigint PRIMARY KEY, name text)".encode()
        )


def _id(row: Row, *, raw: bool) -> int:
    """Of a raw sink the record is the column `data`, as text or as JSON."""
    record = row["data"] if raw else row
    return int((json.loads(record) if isinstance(record, str) else record)["id"])
