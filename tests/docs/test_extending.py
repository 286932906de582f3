"""The step that docs/extending/step.md writes works, with the examples that it gives."""

from __future__ import annotations

import re
import sys
from types import ModuleType
from typing import Any

import pytest

from dataflow_assets.records.step import Example, Step
from tests import ROOT
from tests.transforms.test_transforms import test_example as check

PAGE = ROOT / "docs/extending/step.md"


def _step() -> type[Step]:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    module: Any = ModuleType("upper")
    sys.modules["upper"] = module  # where pydantic looks for what the annotations name
    exec(compile(code, str(PAGE), "exec"), vars(module))  # noqa: S102 - the page's own code
    step: type[Step] = module.Upper
    return step


UPPER = _step()


@pytest.mark.parametrize("example", UPPER.examples, ids=lambda example: example.about)
def test_its_examples(example: Example) -> None:
    check(UPPER, example)
