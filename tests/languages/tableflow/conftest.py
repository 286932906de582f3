from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import devservers
from dataflow_assets.flow import Flow
from dataflow_assets.runs.request import Report
from tests.conftest import Topics
from tests.connectors.files import driver
from tests.drained import drained
from tests.languages.tableflow.files import Bucket, Tableflow


@pytest.fixture
def s3(seaweedfs: devservers.SeaweedFS, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """A fresh bucket; the environment says where the store is, as on a machine of AWS."""
    store, name = driver.bucket(seaweedfs)
    environment = {
        "AWS_S3_ENDPOINT": seaweedfs.s3_endpoint,
        "AWS_REGION": seaweedfs.region,
        "AWS_ACCESS_KEY_ID": seaweedfs.access_key,
        "AWS_SECRET_ACCESS_KEY": seaweedfs.secret_key,
    }
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    yield Bucket(
        f"s3://{name}",
        {
            "s3.endpoint": seaweedfs.s3_endpoint,
            "s3.region": seaweedfs.region,
            "s3.access-key-id": seaweedfs.access_key,
            "s3.secret-access-key": seaweedfs.secret_key,
        },
    )
    store.delete_dir(name)


@pytest.fixture(params=["disk", "s3"])
def bucket(request: pytest.FixtureRequest, tmp_path: Path) -> Bucket:
    """One of each kind."""
    if request.param == "disk":
        return Bucket(f"file://{tmp_path}/lake")
    return request.getfixturevalue("s3")  # type: ignore[no-any-return]


@pytest.fixture
def file(tmp_path: Path, kafka: devservers.Kafka, topic: Topics, bucket: Bucket) -> Tableflow:
    return Tableflow(tmp_path / "tableflow.yaml", kafka.bootstrap, topic(2), bucket)


@pytest.fixture
def run() -> Callable[[Flow], list[Report]]:
    """Drains a flow in this process."""
    return drained
