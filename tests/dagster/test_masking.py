"""Secrets are taken out of a text wherever they came from."""

from pathlib import Path

import pytest

from dataflow_assets.connectors.memory import MemoryOffsetSource
from dataflow_assets.connectors.postgresql.sink.sink import PostgresqlSink
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.redaction import mask


def test_a_mounted_secret_is_masked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "default" / "shop").mkdir(parents=True)
    (tmp_path / "default" / "shop" / "dsn").write_text("postgresql://u:hunter22@host/db")
    monkeypatch.setenv("DATAFLOW_SECRETS", str(tmp_path))
    ref = {"name": "shop", "key": "dsn"}
    sink = PostgresqlSink.model_validate({"connectionStringSecretRef": ref, "table": "t"})
    source = MemoryOffsetSource(store="s", topic="t")
    flow = Flow("default", "a", source, (Branch(sink),))
    assert "hunter22" not in mask("the driver said: password hunter22 is wrong", [flow])
