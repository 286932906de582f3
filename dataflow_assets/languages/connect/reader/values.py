"""The values of a sink connector's file, each checked as it is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from typing_extensions import override

from dataflow_assets.languages.common.connect_values import ConnectValues


@dataclass(frozen=True)
class SinkValues(ConnectValues):
    """Values, with Connect's words for yes and no."""

    @override
    def choice(self, key: str, allowed: Sequence[str]) -> str:
        """One of a few words, in any case; empty where there is none."""
        found = self.text(key).lower()
        return found if found in allowed else super().choice(key, allowed)

    def flag(self, key: str) -> bool:
        """True where a key says so; without a value it does not."""
        return self.choice(key, ("true", "false")) == "true"

    def commas(self, key: str) -> list[str]:
        """Reads an optional list that is separated by commas."""
        return [part.strip() for part in self.text(key).split(",") if part.strip()]
