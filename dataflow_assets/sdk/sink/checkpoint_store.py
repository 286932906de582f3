"""The store of a branch's state: all that a sink writes besides its table and its writer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from dataflow_assets.contracts import Receipt
from dataflow_assets.sdk.sink.state import BranchState

StateChange = Callable[[BranchState | None], BranchState]
"""From the state that is stored to the one to store; None for nothing. Raises to give up."""


class CheckpointStore(ABC):
    """The stored state of one branch.

    Made by `Sink.open` on the driver, once for each attempt and branch. Of a sink whose tasks
    commit (`commits` is "slice") each task moves the state as well, in the transaction of its rows.
    """

    system: ClassVar[str]
    """Begins the names of the failpoints."""

    @abstractmethod
    def load(self, receipts: Sequence[Receipt] = ()) -> BranchState | None:
        """The state as it is stored now.

        Called by the session on the driver, before each micro-batch of a sink that publishes, and
        after each pass of one whose tasks commit.

        Args:
            receipts: of the tasks that have committed since; what they carry need not be read.

        Returns:
            None for a branch that has none.

        Raises:
            TransientError: the target cannot be reached.
        """

    @abstractmethod
    def change(self, step: StateChange) -> BranchState:
        """Stores what `step` makes of the stored state, by compare-and-set.

        Called by the session on the driver, where something must survive a crash.

        Args:
            step: pure; it may be called again, where others have stored in between.

        Returns:
            What is stored now.

        Raises:
            TakenOver, CheckpointRemoved: of the step; then nothing is stored.
            TransientError: the answer is lost.
        """

    @abstractmethod
    def fence(self, step: StateChange, *, empty: bool = False) -> BranchState:
        """The same; and nothing that was begun before it can be committed any more.

        Called by the session on the driver when it opens, restarts or is forgotten.

        Args:
            step: as for `change`.
            empty: takes every row out of the table, unless other flows write into it.

        Returns:
            What is stored now.

        Raises:
            PermanentError: rows of other flows would go as well (`refuse_shared`); and as `change`.
        """

    def publish(self, step: StateChange, receipts: Sequence[Receipt]) -> BranchState:
        """The same as `change`, with the rows that tasks have staged, in one commit.

        Called by the session on the driver once for each micro-batch, after the whole pass. By
        default nothing was staged: the tasks have committed.

        Args:
            step: as for `change`.
            receipts: of this branch, of the slices that are not committed yet; none where the tasks
                commit.

        Returns:
            What is stored now.

        Raises:
            As `change`.
        """
        assert not receipts  # noqa: S101 - a store that has rows to publish overrides this
        return self.change(step)

    @abstractmethod
    def sharing(self) -> Mapping[str, str]:
        """Other flows that write into the table.

        Called by the session on the driver before the table is emptied.

        Returns:
            By the name of each other flow with a checkpoint about this table, what a person runs to
            remove that checkpoint.
        """

    def close(self) -> None:  # noqa: B027 - most hold nothing open
        """Frees the connection; safe twice. Called at the end of each attempt, on the driver."""
