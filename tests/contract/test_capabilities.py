"""A capability is asked by its class: whoever has its members must have named it."""

import importlib
import inspect
import pkgutil
import re
from abc import ABC
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

import dataflow_assets
from dataflow_assets.contracts import (
    AddsColumns,
    ChecksTarget,
    CountsFiles,
    CountsRows,
    Sink,
    SinkSession,
    Source,
    SourceSession,
    StagesWithSpark,
    TargetTable,
    capabilities,
    declared,
    looking,
    reading,
    sink_capabilities,
)
from dataflow_assets.languages import promises
from dataflow_assets.languages.promises import (
    ChecksKeys,
    ChecksStored,
    ListsOffsets,
    NotesEnd,
    PreparesSpans,
    RewindsTargets,
    ShowsInheritance,
    TakesOver,
)

SOURCES = (capabilities, declared, looking, reading)
OF_LANGUAGES: tuple[type, ...] = (PreparesSpans, RewindsTargets, ChecksKeys, ListsOffsets)
TABLES: tuple[type, ...] = (ChecksTarget, AddsColumns, CountsFiles, CountsRows)
SESSIONS: tuple[type, ...] = (NotesEnd, TakesOver, StagesWithSpark)


def _capabilities(*modules: ModuleType) -> Iterator[type]:
    for module in modules:
        for one in vars(module).values():
            if isinstance(one, type) and issubclass(one, ABC) and one.__module__ == module.__name__:
                yield one


def _of_declared_sinks() -> tuple[type, ...]:
    others = {*TABLES, *SESSIONS}
    known = *_capabilities(sink_capabilities), ShowsInheritance, ChecksStored
    return tuple(one for one in known if one not in others)


def _classes(root: type[Any]) -> Iterator[type[Any]]:
    for one in root.__subclasses__():
        yield one
        yield from _classes(one)


def _kinds(root: type[Any]) -> list[type[Any]]:
    for module in pkgutil.walk_packages(dataflow_assets.__path__, "dataflow_assets."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    return [one for one in _classes(root) if one.__module__.startswith("dataflow_assets.")]


@pytest.mark.parametrize(
    ("root", "asked", "least"),
    [
        (Source, (*_capabilities(*SOURCES), *OF_LANGUAGES), 10),
        (SourceSession, (*_capabilities(*SOURCES), *OF_LANGUAGES), 10),
        (Sink, _of_declared_sinks(), 10),
        (SinkSession, SESSIONS, 8),
        (TargetTable, TABLES, 6),
    ],
)
def test_who_has_a_member_of_a_capability_has_the_capability(
    root: type[Any], asked: tuple[type, ...], least: int
) -> None:
    members = {
        name: capability
        for capability in asked
        for name in vars(capability)
        if not name.startswith("_") and not hasattr(root, name)
    }
    kinds = _kinds(root)
    assert len(kinds) > least
    silent = [
        (kind.__name__, name)
        for kind in kinds
        for name, capability in members.items()
        if hasattr(kind, name) and not issubclass(kind, capability)
    ]
    assert silent == []


@pytest.mark.parametrize("module", [*SOURCES, sink_capabilities, promises])
def test_the_file_above_a_capability_asks_for_it(module: object) -> None:
    text = inspect.getsource(module)  # type: ignore[arg-type]
    asked = re.findall(r"^# (.+)\nclass (\w+)", text, re.MULTILINE)
    assert len(asked) == len(re.findall(r"^class \w+\(", text, re.MULTILINE)) > 0
    for files, name in asked:
        for file in files.split(", "):
            there = Path(dataflow_assets.__path__[0], file).read_text(encoding="utf-8")
            assert re.search(rf"is(instance|subclass)\([^()]*\b{name}\)|: {name}\b", there), (
                file,
                name,
            )


@pytest.mark.parametrize("capability", [*TABLES, *SESSIONS, *_of_declared_sinks()])
def test_each_capability_of_sinks_is_had_by_one(capability: type[Any]) -> None:
    root = TargetTable if capability in TABLES else SinkSession if capability in SESSIONS else Sink
    assert [kind for kind in _kinds(root) if issubclass(kind, capability)]


def test_a_session_of_a_sink_is_small_and_asks_little_of_whoever_writes_one() -> None:
    assert len(SinkSession.__abstractmethods__) <= 10
    members = {
        kind.__name__: [
            one for one in vars(kind).values() if isinstance(one, FunctionType | property)
        ]
        for kind in _kinds(SinkSession)
    }
    assert {name: len(own) for name, own in members.items() if len(own) > 20} == {}
