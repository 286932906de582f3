"""Every step's examples, and what every step promises."""

from __future__ import annotations

import inspect
import pkgutil
from contextlib import suppress
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

import pytest

from dataflow_assets import transforms
from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.record import Record, parse, text
from dataflow_assets.records.step import Context, Example, Step

CONTEXT = Context(datetime(2026, 7, 20, 10, tzinfo=UTC))


def _steps() -> list[type[Step]]:
    modules = [import_module(f"{transforms.__name__}.{m.name}") for m in _modules()]
    classes = [cls for module in modules for _, cls in inspect.getmembers(module, inspect.isclass)]
    return [cls for cls in classes if issubclass(cls, Step) and "type" in vars(cls)]


def _modules() -> list[Any]:
    return list(pkgutil.iter_modules(transforms.__path__))


STEPS = _steps()
EXAMPLES = [
    pytest.param(step, example, id=f"{step.type}: {example.about}")
    for step in STEPS
    for example in step.examples
]


def _run(step: type[Step], example: Example) -> list[Record]:
    given = None if example.given is None else example.given.encode()
    record = Record(parse(given), dict(example.metadata))
    found = step.model_validate(dict(example.config)).compile(CONTEXT)(record)
    return [] if found is None else [found] if isinstance(found, Record) else found


@pytest.mark.parametrize(("step", "example"), EXAMPLES)
def test_example(step: type[Step], example: Example) -> None:
    if example.error:
        with pytest.raises(RejectedRecord) as raised:
            _run(step, example)
        assert example.error in raised.value.reason
        return
    found = _run(step, example)
    assert [_text(text(record.body)) for record in found] == [_same(out) for out in example.out]
    if example.out_metadata is not None:
        assert dict(found[0].metadata) == dict(example.out_metadata)


def _text(body: bytes | None) -> str | None:
    return None if body is None else body.decode()


def _same(out: str | None) -> str | None:
    """Written as the product writes it: spaces in an example are for its reader."""
    return None if out is None else _text(text(parse(out.encode())))


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.type)
def test_every_step_has_examples_and_says_what_it_does(step: type[Step]) -> None:
    assert step.examples
    assert step.__doc__
    assert len(_modules()) == len(STEPS)
    for example in step.examples:
        assert bool(example.error) + bool(example.out) <= 1


@pytest.mark.parametrize(("step", "example"), EXAMPLES)
def test_a_step_changes_no_record_that_it_was_given(step: type[Step], example: Example) -> None:
    given = None if example.given is None else example.given.encode()
    record = Record(parse(given), dict(example.metadata))
    with suppress(RejectedRecord):
        step.model_validate(dict(example.config)).compile(CONTEXT)(record)
    assert text(record.body) == text(parse(given))
    assert dict(record.metadata) == dict(example.metadata)
