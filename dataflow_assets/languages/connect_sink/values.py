"""The values of a sink connector's file, each checked as it is read."""

from __future__ import annotations

from dataclasses import dataclass

from dataflow_assets.manifests.dialects.justone.values import Values


@dataclass(frozen=True)
class SinkValues(Values):
    """Values, with the words that all of Connect has for yes and no."""

    def flag(self, key: str) -> bool:
        """Whether a key is true; without a value it is not."""
        return self.choice(key, ("true", "false")) == "true"
