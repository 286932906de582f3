"""The original documentation's manifests: each loads, or is refused for exactly these reasons."""

import pytest

from dataflow_assets.manifests import file_reading
from dataflow_assets.manifests.load import load
from tests import ROOT

EXAMPLES = ROOT / "examples"
SEEDS = EXAMPLES / "seeds"
SOURCE = "spec.source.config"
SINK = "spec.sink.config"

REFUSED: dict[str, list[tuple[int, int, str, str]]] = {
    "secrets-kafka": [],
    "secrets-postgresql": [],
    "secrets-postgresql-sink": [],
    "secrets-kafka-tls": [],
    "kafka-source": [
        (16, 25, f"{SOURCE}.securityProtocol", "SASL_PLAINTEXT forbids the block tls"),
    ],
    "kafka-sink": [
        (19, 25, f"{SINK}.securityProtocol", "SASL_PLAINTEXT forbids the block tls"),
    ],
    "kafka-sasl-ssl": [],
    "kafka-sasl-plaintext": [],
    "postgresql-source": [],
    "postgresql-migration": [],
    "postgresql-cdc-source": [],
    "postgresql-sink": [],
    "postgresql-sink-raw": [],
    "iceberg-source": [],
    "iceberg-sink": [],
    "iceberg-sink-columns": [],
    "kafka-to-iceberg-flat": [],
    "kafka-to-clickhouse": [],
    "clickhouse-sink": [],
    "clickhouse-source": [],
    "clickhouse-to-clickhouse": [],
    "kafka-to-trino": [],
    "kafka-to-nessie": [],
    "nessie-source": [],
    "trino-source": [],
    "trino-sink": [],
    "nessie-sink": [],
}


@pytest.fixture(autouse=True)
def _shared_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the seeds uses Secrets of this namespace."""
    monkeypatch.setenv("DATAFLOW_SECRET_NAMESPACES", "shared-secrets")


def test_every_seed_is_listed() -> None:
    assert {path.stem for path in SEEDS.glob("*.yaml")} == set(REFUSED)
    text = (SEEDS / "README.md").read_text(encoding="utf-8")
    assert [name for name in REFUSED if f"`{name}.yaml`" not in text] == []


@pytest.mark.parametrize("name", REFUSED)
def test_seed(name: str) -> None:
    loaded = load(SEEDS / f"{name}.yaml")
    expected = REFUSED[name]
    found = [(f.line, f.column, f.path) for f in loaded.findings]
    assert found == [(line, column, path) for line, column, path, _ in expected]
    for finding, (_, _, _, message) in zip(loaded.findings, expected, strict=True):
        assert finding.message.startswith(message)
    assert len(loaded.flows) == (0 if expected else 1)


PARTS = {
    "`SASL_PLAINTEXT` forbids `tls`": ("SASL_PLAINTEXT forbids the block tls",),
}
"""What the table of the page calls the findings of a file."""


@pytest.mark.parametrize("name", REFUSED)
def test_the_page_says_what_becomes_of_each_seed_today(name: str) -> None:
    lines = (SEEDS / "README.md").read_text(encoding="utf-8").splitlines()
    (line,) = [line for line in lines if line.startswith(f"| `{name}.yaml` |")]
    today = line.rstrip("| ").rpartition(" | ")[2]
    said = [
        f"{finding.path} {finding.message}" for finding in load(SEEDS / f"{name}.yaml").findings
    ]
    assert (today == "loads") == (not said)
    for part, signs in PARTS.items():
        assert (part in today) == any(sign in text for sign in signs for text in said)


def test_all_seeds_at_once_are_as_many_findings() -> None:
    loaded = load(SEEDS)
    assert len(loaded.findings) == sum(map(len, REFUSED.values()))
    assert len(loaded.flows) == sum(not findings for findings in REFUSED.values())


def test_no_seed_s_secret_is_shown() -> None:
    shown = "\n".join(map(str, load(SEEDS).findings)) + "\n".join(map(repr, load(SEEDS).flows))
    for secret in (
        "kafka-password",
        "your-token",
        "dataflow:dataflow",
        "user:password",
        "eyJhbGci",
        "schema-password",
        "client-secret",
        "trino-password",
    ):
        assert secret not in shown


def test_examples_load_clean_and_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATAFLOW_FILES", "/data")
    file_reading._parse.cache_clear()  # what a test before has read with another environment
    paths = sorted(EXAMPLES.glob("*.yaml"))
    loaded = load(paths)
    assert not loaded.findings
    flows = loaded.flows
    assert len(flows) == len(paths) >= 3
    for flow in flows:
        flow.resolve()
