"""Makes stored copies with another version, whose checkout is given: README.md says what for.

python tests/stored/make.py CHECKOUT COPIES [pytest's options]
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import dagster as dg
import pytest

from dataflow_assets.connectors.memory import Store
from tests.stored import lanes
from tests.stored.checkouts import CHECKOUT, HERE, ended, run
from tests.stored.flows import StoredFlow
from tests.stored.left import LEFT
from tests.stored.queries import QUERIES, StoredQuery
from tests.stored.tables import StoredTable

COPIES = "DATAFLOW_STORED_COPIES"


@pytest.mark.parametrize("name", LEFT)
def test_copy_of_what_a_flow_has_stored(name: str, request: pytest.FixtureRequest) -> None:
    left = LEFT[name]
    _keep(name, StoredFlow(request, left.system).leave(run, left.in_drain, left.in_replay))


@pytest.mark.parametrize("name", QUERIES)
def test_copy_of_the_state_of_a_query(name: str, request: pytest.FixtureRequest) -> None:
    _keep(name, StoredQuery(request, QUERIES[name]).leave(run))


def test_copy_of_a_table_that_was_read_in_parts(request: pytest.FixtureRequest) -> None:
    _keep("table", StoredTable(request).leave(run))


def test_copy_of_what_a_lane_has_stored(store: Store, tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    lanes.seed(store)
    home = {"DAGSTER_HOME": str(tmp_path), "DATAFLOW_START": "1"}
    assert ended("registry.py", store.name, **home).returncode == -signal.SIGKILL
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        _keep("lane", lanes.dump(tmp_path, instance, store))


def _keep(name: str, text: str) -> None:
    folder = HERE / os.environ[COPIES]
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(text)


if __name__ == "__main__":
    os.environ[CHECKOUT], os.environ[COPIES] = str(Path(sys.argv[1]).resolve()), sys.argv[2]
    sys.exit(pytest.main([__file__, "-p", "no:cacheprovider", *sys.argv[3:]]))
