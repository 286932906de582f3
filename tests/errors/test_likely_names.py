"""Which name was probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest

import dataflow_assets
from dataflow_assets import registry
from dataflow_assets.errors.likely_names import did_you_mean, did_you_mean_or, likely
from dataflow_assets.languages.common.keys import suggest

NAMES = ["orders", "shop.returned-parcels", "id", "customer_id"]
PACKAGE = Path(dataflow_assets.__file__).parent


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


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("rename", ["remove"], None),
        ("re-name", ["remove"], None),
        ("minRecordsPerBatch", ["maxRecordsPerBatch"], None),
        ("minRecordsPerBatch", ["maxRecordsPerBatch", "recordsPerBatch"], "recordsPerBatch"),
        ("endingOffsets", ["startingOffsets"], None),
        ("excludeColumn", ["includeColumns", "excludeColumns"], "excludeColumns"),
        ("key.format", ["value.format"], None),
        ("startingOffset", ["startingOffsets"], "startingOffsets"),
        ("remove_end", ["remove_ends"], "remove_ends"),
    ],
)
def test_what_means_the_opposite_is_not_suggested(
    name: str, known: list[str], expected: str | None
) -> None:
    assert likely(name, known) == expected


def test_no_step_is_suggested_for_its_opposite() -> None:
    """By the rule for all names, not by a list of the steps alone."""
    assert likely("rename", registry.steps()) != "remove"


def test_a_choice_of_a_manifest_and_a_table_are_guessed_by_the_same_rule() -> None:
    """A column that is misspelt, too: not only one whose case differs."""
    for ask in (
        suggest,
        lambda word, names: did_you_mean(word, names).removeprefix("; "),
        lambda word, names: did_you_mean_or(word, names, "look it up"),
    ):
        assert ask("latest", ["earliest", "latest-offset"]) == "did you mean latest-offset?"
        assert ask("oder.id", ["id", "order_id"]) == "did you mean order_id?"
    assert did_you_mean_or("latest", ["earliest"], "look it up") == "look it up"


def test_no_other_module_compares_names_or_words_a_suggestion() -> None:
    """But for advice that needs no guess: the place of a key, or a word of JSON."""
    texts = {
        str(one.relative_to(PACKAGE)): one.read_text(encoding="utf-8")
        for one in PACKAGE.rglob("*.py")
    }
    assert [name for name, text in texts.items() if "get_close_matches" in text] == [
        "errors/likely_names.py"
    ]
    languages = "languages"
    known = {
        "errors/likely_names.py",
        "records/conditions/condition.py",
        *(f"{languages}/{name}.py" for name in ("common/keys", "dataflow/steps")),
    }
    assert {name for name, text in texts.items() if "did you mean {" in text} == known
