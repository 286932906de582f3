"""Tests of a manifest's steps: no Spark, no server, no Secret. Run them with `pytest examples`."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from dataflow_assets.testing import NotJson, Rejected, steps_of

NOW = datetime(2026, 7, 20, 10, tzinfo=UTC)
run = steps_of(Path(__file__).with_name("orders-with-steps.yaml"), now=NOW)


def test_an_order_gets_the_columns_of_its_table() -> None:
    order = {"orderId": "17", "amount": "12.50", "cardNumber": "4111111111111111", "noise": 1}
    found = run(order, metadata={"timestamp": "2026-07-20T09:59:58Z"})
    assert found.bodies == [
        {
            "order_id": 17,
            "amount": Decimal("12.50"),
            "card_number": "***",
            "sent_at": "2026-07-20T09:59:58Z",
        }
    ]


def test_a_draft_is_dropped() -> None:
    assert run({"orderId": "1", "draft": True}).is_filtered


def test_a_cancelled_order_takes_its_route() -> None:
    (out,) = run({"orderId": "1", "status": "cancelled"}).out
    assert out.route == "$.status == 'cancelled'"


def test_an_order_without_a_proper_number_is_rejected() -> None:
    reason = "order_id: must be a whole number of 64 bits"
    assert run({"orderId": "twenty"}).rejected == Rejected(3, "cast", reason)


def test_what_is_no_json_passes_as_it_is() -> None:
    assert run("not an order").bodies == [NotJson(b"not an order")]
