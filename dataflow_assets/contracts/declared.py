"""Promises that only some declared sources make, beside `Source`.

As in `capabilities`, the file in the comment above a class asks for it by `isinstance`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

from dataflow_assets.contracts.message_format import MessageFormat
from dataflow_assets.contracts.schema import TypeRow


# flow.py
class FormatsMessages(ABC):
    """A source of messages that may be written in something else than JSON."""

    @abstractmethod
    def message_format(self) -> MessageFormat | None:
        """Returns what the bodies of messages are written in; None for JSON.

        Called by the driver once for each attempt of a run, with all secrets in place, and by
        previews and replays; what is returned travels to the tasks. Files that it is made of are
        read here.

        Raises:
            PermanentError where a file cannot be read, or a schema in it cannot be used.
        """


# languages/dataflow/document.py
class AdaptsToBranches(ABC):
    """A source whose reads depend on how its branches store rows."""

    @abstractmethod
    def for_branches(self, *, upserts: bool) -> Self:
        """The source as its flow needs it.

        Called when a manifest is loaded, once its branches are known.

        Args:
            upserts: whether a branch does.
        """


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


# reference/types.py
class ListsTypes(ABC):
    """A source of columns with types of its own."""

    @classmethod
    @abstractmethod
    def types(cls) -> tuple[TypeRow, ...]:
        """Returns how the system's types travel, for docs/types.md.

        Called when the reference is generated.
        """
