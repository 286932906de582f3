"""Tests whose servers are slow to start: which they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import cast

import pytest

HEAVY = frozenset({"kafkaConnect", "nessie", "trino"})
"""Connectors whose servers are slow to start: in `make test` one process runs their tests."""
ESSENTIAL: Mapping[str, frozenset[str]] = {
    "test_drains_everything_once_and_resumes": frozenset(
        {
            "kafkaConnect-memory-span",
            "memory-offsets-nessie",
            "memory-offsets-trino",
            "trino-memory-span",
        }
    ),
    "test_columns_of_our_own_names_pass_from_any_source_to_any_sink": frozenset({"trino-trino"}),
    "test_a_failure_at_every_step_neither_loses_nor_doubles": frozenset(
        {
            "nessie-iceberg.before-commit",
            "nessie-iceberg.after-commit",
            "trino-trino.recorded",
            "trino-trino.written",
            "trino-upsert-trino.written",
        }
    ),
}
"""By test: those of its cases with a heavy server that `make test` runs too."""
SERVERS = frozenset({"trino", "nessie", "apicurio", "keycloak"})
"""Fixtures that start one of those servers."""
MARKS = ("heavy", "alone")
"""Each is a run of `make test` with few of its tests."""


def has_heavy_end(item: pytest.Item) -> bool:
    """Whether one of its parameters is the name of a connector whose server is heavy."""
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    names = [name for value in values for name in (value if isinstance(value, tuple) else [value])]
    return any(isinstance(name, str) and _names_heavy(name) for name in names)


def is_essential(item: pytest.Item) -> bool:
    """Whether it is one of ESSENTIAL."""
    function = cast("pytest.Function", item)
    return function.callspec.id in ESSENTIAL.get(function.originalname, ())


def may_have(file: Path, mark: str) -> bool:
    """Whether `make test` may find a test with one of MARKS in this file: its text says so."""
    tests = [f"def {name}(" for name in ESSENTIAL] if mark == "heavy" else []
    text = file.read_text(encoding="utf-8")
    return any(part in text for part in (f"mark.{mark}", *tests))


def refuse_hidden(items: Iterable[pytest.Item]) -> None:
    """Raises UsageError for a test that a run of one of MARKS would not find.

    And for one that would start a heavy server beside all the others.
    """
    items = list(items)
    if beside := [item.nodeid for item in items if _is_heavy_unsaid(item)]:
        raise pytest.UsageError(f"mark as heavy, for they start one of {sorted(SERVERS)}: {beside}")
    marked = [(item, mark) for item in items for mark in MARKS if item.get_closest_marker(mark)]
    hidden = [item.nodeid for item, mark in marked if not may_have(item.path, mark)]
    if hidden:
        raise pytest.UsageError(f"write pytest.mark.heavy or .alone into the files of {hidden}")


def _is_heavy_unsaid(item: pytest.Item) -> bool:
    asked = getattr(item, "fixturenames", ())
    return not SERVERS.isdisjoint(asked) and item.get_closest_marker("heavy") is None


def _names_heavy(name: str) -> bool:
    """Of a connector with a variant, and of an example: `kafka-to-trino.yaml`."""
    parts = name.removesuffix(".yaml").split("-")
    return not HEAVY.isdisjoint(parts if name.endswith(".yaml") else parts[:1])
