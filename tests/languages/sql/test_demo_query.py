"""The demo's own query over a shop that has bad messages too."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import devservers
from dataflow_assets.flow import Flow
from dataflow_assets.manifests.load import load
from dataflow_assets.runs.request import Report
from dataflow_assets.testing import choose
from devservers.demo.shop import Shop
from tests import ROOT
from tests.conftest import Topics
from tests.languages.sql.files import latest, messages

Run = Callable[[Flow], list[Report]]
QUERY = ROOT / "examples" / "demo" / "revenue-per-region.sql"
PAID = ("paid", "shipped", "delivered")


def test_revenue_per_region(
    kafka: devservers.Kafka,
    topic: Topics,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DATAFLOW_FILES", str(tmp_path))
    source, target = topic(3), topic(2)
    text = QUERY.read_text().replace("127.0.0.1:19092", kafka.bootstrap)
    text = text.replace("'topic' = 'orders'", f"'topic' = '{source}'")
    text = text.replace("'topic' = 'revenue_per_region'", f"'topic' = '{target}'")
    file = tmp_path / "query.sql"
    file.write_text(text)
    flow, shop = choose(load(file), None), Shop()
    producer, orders = Producer({"bootstrap.servers": kafka.bootstrap}), dict[str, Any]()
    for second in range(40):
        for key, value in shop.messages(float(second), 20):
            producer.produce(source, value, key)
            _remember(orders, value)
        assert producer.flush(20) == 0
        if second in (15, 39):
            (*_, last) = run(flow)
            stored = [(0, one.key(), one.value()) for one in messages(kafka.bootstrap, target)]
            found = [json.loads(one, parse_float=Decimal) for one in latest(stored).values()]
            assert {one["region"]: (one["orders"], one["revenue"]) for one in found} == _paid(
                orders
            )
    assert last.checkpoint.totals.rejected > 0


def _remember(orders: dict[str, Any], value: bytes) -> None:
    try:
        order = json.loads(value, parse_float=Decimal)
    except ValueError:
        return
    if order["total"] != "free":
        orders[order["id"]] = order


def _paid(orders: dict[str, Any]) -> dict[str, tuple[int, Decimal]]:
    found: dict[str, list[Decimal]] = {}
    for order in orders.values():
        if order["status"] in PAID:
            found.setdefault(order["customer"]["country"], []).append(order["total"])
    return {country: (len(totals), sum(totals, Decimal())) for country, totals in found.items()}
