"""The example of Flink's own page as it is there, but for the brokers: in Avro, and in JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

import devservers
from dataflow_assets.flow import Flow
from dataflow_assets.manifests.load import load
from dataflow_assets.runs.request import Report
from dataflow_assets.testing import choose
from tests.conftest import Topics
from tests.languages.sql.files import PAGE_TABLES, latest, messages

Run = Callable[[Flow], list[Report]]
PAGE = f"""{PAGE_TABLES}
-- calculate the pv, uv and insert into the upsert-kafka sink
INSERT INTO pageviews_per_region
SELECT
  user_region,
  COUNT(*),
  COUNT(DISTINCT user_id)
FROM pageviews
GROUP BY user_region;
"""


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (
            "avro",
            {
                bytes.fromhex("046575"): bytes.fromhex("04657502080204"),
                bytes.fromhex("047573"): bytes.fromhex("04757302040202"),
            },
        ),
        (
            "json",
            {
                b'{"user_region":"eu"}': b'{"user_region":"eu","pv":4,"uv":2}',
                b'{"user_region":"us"}': b'{"user_region":"us","pv":2,"uv":1}',
            },
        ),
    ],
)
def test_the_page_of_flink(
    kind: str,
    wanted: dict[bytes, bytes],
    kafka: devservers.Kafka,
    topic: Topics,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DATAFLOW_FILES", str(tmp_path))
    views, regions = topic(2), topic(2)
    text = PAGE.replace("'...'", f"'{kafka.bootstrap}'").replace("'avro'", f"'{kind}'")
    text = text.replace("'pageviews'", f"'{views}'")
    file = tmp_path / "page.sql"
    file.write_text(text.replace("'pageviews_per_region'", f"'{regions}'"))
    flow = choose(load(file), None)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for turn in range(2):
        for number, (user, region) in enumerate(((1, "eu"), (2, "eu"), (1, "us"))):
            row = {"user_id": user, "page_id": number, "user_region": region}
            row["viewtime"] = f"2026-01-01 00:00:0{turn}.123456"
            producer.produce(views, json.dumps(row).encode(), partition=number % 2)
        assert producer.flush(20) == 0
        run(flow)
    stored = [(0, one.key(), one.value()) for one in messages(kafka.bootstrap, regions)]
    assert latest(stored) == wanted
