"""Promises that only some declared sources make, beside `Source`.

As in `capabilities`, the file in the comment above a class asks for it by `isinstance`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod


# languages/dataflow/rules.py, languages/dataflow/notes.py
class ChoosesColumns(ABC):
    """A source whose manifest may leave columns out of its rows."""

    @abstractmethod
    def leaves_out(self, column: str) -> bool:
        """Returns whether the manifest leaves a column of the source out of its rows.

        Read when manifests are loaded.

        Args:
            column: its name.
        """


# runs/open_branches.py, assets/metadata.py, assets/ingest.py, cli/commands.py
class KeepsLog(ABC):
    """A source whose server keeps log until the flow has read it; assets check how much that is."""

    @abstractmethod
    def left_behind(self) -> str:
        """Returns what stays on the source's server when a flow is reset or removed.

        Called by `dataflow reset`, and by the lane that drives a flow when its manifest is removed;
        with all secrets in place.

        Returns:
            What stays, and what a person runs to remove it.
        """
