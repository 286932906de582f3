"""Which name was probably meant."""

from __future__ import annotations

import pytest

from dataflow_assets.sdk.likely_names import did_you_mean, likely

NAMES = ["orders", "shop.returned-parcels", "id", "customer_id"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("Order", "orders"),
        ("shop_returned_parcel", "shop.returned-parcels"),
        ("ID", "id"),
        ("customerid", "customer_id"),
        ("parcels", None),
        ("orders", None),
    ],
)
def test_names(name: str, meant: str | None) -> None:
    assert likely(name, NAMES) == meant
    assert did_you_mean(name, NAMES) == (f"; did you mean {meant}?" if meant else "")
