"""A capability is asked by its class: whoever has its members must have named it."""

import importlib
import inspect
import pkgutil
import re
from abc import ABC
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dataflow_assets
from dataflow_assets.contracts import (
    Source,
    SourceSession,
    capabilities,
    declared,
    looking,
    reading,
)

MODULES = (capabilities, declared, looking, reading)


def _capabilities() -> Iterator[type]:
    for module in MODULES:
        for one in vars(module).values():
            if isinstance(one, type) and issubclass(one, ABC) and one.__module__ == module.__name__:
                yield one


def _classes(root: type[Any]) -> Iterator[type[Any]]:
    for one in root.__subclasses__():
        yield one
        yield from _classes(one)


@pytest.mark.parametrize("root", [Source, SourceSession])
def test_who_has_a_member_of_a_capability_has_the_capability(root: type[Any]) -> None:
    for module in pkgutil.walk_packages(dataflow_assets.__path__, "dataflow_assets."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    members = {
        name: capability
        for capability in _capabilities()
        for name in vars(capability)
        if not name.startswith("_")
    }
    kinds = [one for one in _classes(root) if one.__module__.startswith("dataflow_assets.")]
    assert len(kinds) > 10
    silent = [
        (kind.__name__, name)
        for kind in kinds
        for name, capability in members.items()
        if hasattr(kind, name) and not issubclass(kind, capability)
    ]
    assert silent == []


@pytest.mark.parametrize("module", MODULES)
def test_the_file_above_a_capability_asks_for_it(module: object) -> None:
    text = inspect.getsource(module)  # type: ignore[arg-type]
    asked = re.findall(r"^# (.+)\nclass (\w+)", text, re.MULTILINE)
    assert len(asked) == len(re.findall(r"^class \w+\(", text, re.MULTILINE))
    for files, name in asked:
        for file in files.split(", "):
            there = Path(dataflow_assets.__path__[0], file).read_text(encoding="utf-8")
            assert re.search(rf"is(instance|subclass)\([^()]*\b{name}\)|: {name}\b", there), (
                file,
                name,
            )
