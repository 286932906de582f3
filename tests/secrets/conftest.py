"""A process that is inside a cluster, as far as it can tell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dataflow_assets.secrets import cluster
from tests.secrets.api import Api


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """The cluster's API, which a process finds as it does in a pod."""
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    server = Api(folder)
    server.start()
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    monkeypatch.setenv(cluster.ACCOUNT, str(folder))
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # does not lead to the API
    cluster.forget()
    yield server
    server.stop()
    cluster.forget()
