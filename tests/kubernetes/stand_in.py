"""Answers of an API server, one after another, and what it was asked; it validates nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from dataflow_assets.kubernetes import collection, reports
from dataflow_assets.secrets.cluster_api import Answer

Request = tuple[str, str, Any]


@dataclass
class StandIn:
    """The answers that are left, by what they answer; each is given once."""

    lists: list[Answer] = field(default_factory=list)
    watches: list[list[Answer]] = field(default_factory=list)
    writes: list[Answer] = field(default_factory=list)
    """Without any, everything is accepted."""
    requests: list[Request] = field(default_factory=list)

    def ask(
        self, method: str, path: str, document: Mapping[str, Any] | None = None, _content: str = ""
    ) -> Answer:
        self.requests.append((method, path, document))
        if method == "GET":
            return self.lists.pop(0)
        return self.writes.pop(0) if self.writes else Answer(200, {})

    def follow(self, path: str, _silence: float) -> Iterator[Answer]:
        self.requests.append(("WATCH", path, None))
        yield from self.watches.pop(0)

    @property
    def written(self) -> list[Request]:
        return [one for one in self.requests if one[0] in {"POST", "PATCH"}]


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    stand_in = StandIn()
    monkeypatch.setattr(collection, "ask", stand_in.ask)
    monkeypatch.setattr(collection, "follow", stand_in.follow)
    monkeypatch.setattr(reports, "ask", stand_in.ask)
    return stand_in


def items(*documents: Mapping[str, Any], version: str = "7", more: str = "") -> Answer:
    """A list, or a page of one where there is more."""
    return Answer(
        200, {"items": documents, "metadata": {"resourceVersion": version, "continue": more}}
    )


def event(kind: str, document: Mapping[str, Any], version: str = "8") -> Answer:
    metadata = {**document.get("metadata", {}), "resourceVersion": version}
    return Answer(200, {"type": kind, "object": {**document, "metadata": metadata}})
