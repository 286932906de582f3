"""What exists, found by name: every source, sink and format that lives in its folder.

A new connector or format is one file; nothing is registered by hand. A class counts when it is
concrete and has a `type` of its own.
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import TypeVar

from dataflow_assets import connectors
from dataflow_assets.contracts import Connector, Sink, Source

AnyConnector = TypeVar("AnyConnector", bound=Connector)


@cache
def sources() -> dict[str, type[Source]]:
    """Sources by the manifest's `type`."""
    return _by_type(Source)


@cache
def sinks() -> dict[str, type[Sink]]:
    """Sinks by the manifest's `type`."""
    return _by_type(Sink)


def _by_type(kind: type[AnyConnector]) -> dict[str, type[AnyConnector]]:
    found = {cls.type: cls for cls in _classes(kind)}
    return dict(sorted(found.items()))


def _classes(kind: type[AnyConnector]) -> Iterator[type[AnyConnector]]:
    for module in pkgutil.iter_modules(connectors.__path__):
        namespace = import_module(f"{connectors.__name__}.{module.name}")
        for _, cls in inspect.getmembers(namespace, inspect.isclass):
            if issubclass(cls, kind) and "type" in vars(cls) and not inspect.isabstract(cls):
                yield cls
