"""All connectors and steps, by name: every source, sink and step that lives in its folder.

A new connector or step is one file; nothing is registered by hand. A class counts when it is
concrete and has a `type` of its own. Doubles of the in-memory kind are left out of what manifests
may name, unless the environment says DATAFLOW_DOUBLES=1, as this project's own tests do.
"""

from __future__ import annotations

import inspect
import os
import pkgutil
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TypeVar

from dataflow_assets import connectors, transforms
from dataflow_assets.contracts import Sink, Source
from dataflow_assets.records.step import Step

DOUBLES = "DATAFLOW_DOUBLES"
Declared = TypeVar("Declared", Source, Sink, Step)
End = TypeVar("End", Source, Sink)


@cache
def sources() -> dict[str, type[Source]]:
    return _offer(_by_type(Source, connectors))


@cache
def sinks() -> dict[str, type[Sink]]:
    return _offer(_by_type(Sink, connectors))


@cache
def steps() -> dict[str, type[Step]]:
    return _by_type(Step, transforms)


def systems() -> list[str]:
    """Lists the types of sources and sinks that a manifest may name, without doubles."""
    ends = {**sources(), **sinks()}
    return sorted(name for name, cls in ends.items() if not cls.double)


def _offer(ends: dict[str, type[End]]) -> dict[str, type[End]]:
    offers_doubles = os.environ.get(DOUBLES) == "1"
    return {name: cls for name, cls in ends.items() if offers_doubles or not cls.double}


def _by_type(kind: type[Declared], folder: ModuleType) -> dict[str, type[Declared]]:
    by_type = {cls.type: cls for cls in _classes(kind, folder)}
    return dict(sorted(by_type.items()))


def _classes(kind: type[Declared], folder: ModuleType) -> Iterator[type[Declared]]:
    for module in pkgutil.iter_modules(folder.__path__):
        namespace = import_module(f"{folder.__name__}.{module.name}")
        for _, cls in inspect.getmembers(namespace, inspect.isclass):
            if issubclass(cls, kind) and "type" in vars(cls) and not inspect.isabstract(cls):
                yield cls
