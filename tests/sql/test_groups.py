"""Groups in a topic: what is written for what was sent, and exactly once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dataflow_assets.flow import Flow
from dataflow_assets.runs.request import Report
from tests.sql.files import Sent, Sql, latest

Run = Callable[[Flow], list[Report]]
VIEWS = "user_id BIGINT, page_id BIGINT, viewtime TIMESTAMP, user_region STRING"
REGIONS = "user_region STRING, pv BIGINT, uv BIGINT, PRIMARY KEY (user_region) NOT ENFORCED"
QUERY = "SELECT user_region, COUNT(*), COUNT(DISTINCT user_id) FROM s GROUP BY user_region"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DATAFLOW_FILES", str(tmp_path))
    return tmp_path / "_state"


def view(user: int | None, region: str | None) -> Sent:
    return None, json.dumps({"user_id": user, "user_region": region}).encode()


def test_the_seeds_query(sql: Sql, run: Run) -> None:
    flow = sql.write(VIEWS, REGIONS, QUERY)
    sql.send([view(1, "eu"), view(1, "eu"), view(2, "eu"), view(None, "us"), view(1, None)])
    run(flow)
    assert latest(sql.stored()) == {
        b'{"user_region":"eu"}': b'{"user_region":"eu","pv":3,"uv":2}',
        b'{"user_region":"us"}': b'{"user_region":"us","pv":1,"uv":0}',
    }
    sql.send([view(2, "eu"), view(3, "us")])
    run(flow)
    assert latest(sql.stored()) == {
        b'{"user_region":"eu"}': b'{"user_region":"eu","pv":4,"uv":2}',
        b'{"user_region":"us"}': b'{"user_region":"us","pv":2,"uv":1}',
    }
