"""Which name was probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest

import dataflow_assets
from dataflow_assets.likely_names import did_you_mean, likely
from dataflow_assets.manifests.dialects.keys import meant

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


def test_a_choice_of_a_manifest_and_a_table_are_guessed_by_the_same_rule() -> None:
    """A column that is misspelt, too: not only one whose case differs."""
    for ask in (meant, lambda word, names: did_you_mean(word, names).removeprefix("; ")):
        assert ask("latest", ["earliest", "latest-offset"]) == "did you mean latest-offset?"
        assert ask("oder.id", ["id", "order_id"]) == "did you mean order_id?"


def test_no_other_module_compares_names() -> None:
    package = Path(dataflow_assets.__file__).parent
    asking = [one for one in package.rglob("*.py") if "get_close_matches" in one.read_text()]
    assert [one.name for one in asking] == ["likely_names.py"]
