"""Texts that are read a column at once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import dataflow_assets
from dataflow_assets.formats.text_forms import NUMBER, UUID, all_have

ONE = "0190a2c4-0000-7000-8000-00000000000A"


@pytest.mark.parametrize(
    ("form", "texts", "all_of_them"),
    [
        (UUID, [ONE, None, ONE.lower()], True),
        (UUID, [ONE, ONE.replace("-", "")], False),
        (UUID, [f" {ONE}"], False),
        (NUMBER, ["1", "-0.5e3", "NaN", "-Infinity", None], True),
        (NUMBER, ["1", "01"], False),
        (NUMBER, [None], True),
        (NUMBER, [], True),
    ],
)
def test_all_texts_have_the_form(form: str, texts: list[str | None], all_of_them: bool) -> None:
    assert all_have(form, pa.array(texts, pa.string())) is all_of_them


def test_one_function_asks() -> None:
    package = Path(dataflow_assets.__file__).parent
    asking = [one for one in package.rglob("*.py") if "pc.all(pc.match_sub" in one.read_text()]
    assert [one.name for one in asking] == ["text_forms.py"]
