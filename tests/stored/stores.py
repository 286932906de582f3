"""What a flow has stored in a system, as text, and back again: one class for each system.

Names of one run (a topic, a schema, ids that a server gives) are `{{names}}` in the text, so that
it can be loaded under other names.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from dataflow_assets.contracts import Target
from dataflow_assets.sdk.record_ids import REPLAY

Config = dict[str, Any]
Row = tuple[int, str]


class Stores(ABC):
    """The target of one flow, in a place of its own."""

    type: ClassVar[str]

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.request = request
        self.make()

    @abstractmethod
    def make(self) -> None:
        """The place, empty."""

    @abstractmethod
    def names(self) -> dict[str, str]:
        """What is this run's own in the stored text, by the placeholder that stands for it."""

    def hashed(self, target: Target) -> dict[str, str]:  # noqa: ARG002 - most have none
        """The names under which it keeps what is stored of a branch, where they have a hash."""
        return {}

    @abstractmethod
    def config(self) -> Config:
        """Of the sink."""

    @abstractmethod
    def rows(self) -> list[Row]:
        """All of the target, sorted."""

    @abstractmethod
    def dump(self) -> Any:
        """Everything in the place, as JSON."""

    @abstractmethod
    def load(self, dumped: Any) -> None:
        """The same, into a place where nothing is. Only ids of what it makes are placeholders."""


def hidden(text: str, names: Mapping[str, str]) -> str:
    """The text with placeholders for these names; the longest is replaced first."""
    for name, value in sorted(names.items(), key=lambda one: -len(one[1])):
        text = text.replace(value, f"{{{{{name}}}}}")
    return text


def shown(text: str, names: Mapping[str, str]) -> str:
    """The text with names for their placeholders."""
    for name, value in names.items():
        text = text.replace(f"{{{{{name}}}}}", value)
    return text


def of_replay(target: Target) -> Target:
    """The branch under which a replay into this one keeps its checkpoint."""
    return replace(target, branch=f"{target.branch}{REPLAY}")
