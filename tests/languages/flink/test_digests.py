"""Digests of queries as stored states have them: a state with another one is not found again."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataflow_assets.languages.flink.state.source import ViewSource
from dataflow_assets.manifests.load import load
from dataflow_assets.testing import chosen
from tests.languages.flink.test_rows import table

SOURCE = "a BIGINT, b STRING, c DECIMAL(10, 2), ts TIMESTAMP(3), WATERMARK FOR ts AS ts"
TABLES = (
    table("s", SOURCE),
    table("u", "id BIGINT, b STRING, n INT, PRIMARY KEY (id) NOT ENFORCED"),
    table("o", "k BIGINT, v STRING, PRIMARY KEY (k) NOT ENFORCED"),
    table("p", "n BIGINT, v STRING"),
)
WINDOWS = "TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '5' MINUTES))"
NUMBERED = "SELECT a, b, ROW_NUMBER() OVER (PARTITION BY a ORDER BY ts DESC) AS n FROM s"


@pytest.mark.parametrize(
    ("query", "shape", "whole"),
    [
        (
            "SELECT a, MAX(b || 'x') FROM s WHERE c > 1.5 GROUP BY a",
            "9f3099a19b954c26",
            "fea3c6572b44e429",
        ),
        (
            "SELECT id, MAX(b) FROM u GROUP BY id HAVING COUNT(DISTINCT n) < 3",
            "8e09e0ff204d9d9d",
            "56bef2538e93fe53",
        ),
        (
            f"SELECT COUNT(*), MIN(b) FROM {WINDOWS} GROUP BY window_start, window_end",
            "8bee2fb1a401bebe",
            "737eae5bf933aca3",
        ),
        (f"SELECT a, b FROM ({NUMBERED}) WHERE n = 1", "26586427d5ebf258", "c46949c023fb358b"),
    ],
)
def test_a_state_that_is_stored_is_one_of_its_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str, shape: str, whole: str
) -> None:
    """Where this fails, everybody would have to build states again: read the older digest too."""
    monkeypatch.setenv("DATAFLOW_FILES", str(tmp_path))
    file = tmp_path / "one.sql"
    into = "p" if WINDOWS in query else "o"
    file.write_text("\n".join([*TABLES, f"INSERT INTO {into} {query};"]))
    source = chosen(load(file), None).source
    assert isinstance(source, ViewSource)
    assert (source.view.shape, source.view.query) == (shape, whole)
