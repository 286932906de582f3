"""What a database answers about a table that is polled; every comparison is the server's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from dataflow_assets.sdk.polling.positions import Pair, PolledPosition, Rows


class Polled(Protocol):
    """A table or query as its server describes it now.

    A connector's session makes one for each question of the engine (`PolledSession.asking`), on the
    driver of a run and in the process of the sensors. Every method may raise TransientError where
    the server cannot be reached, PermanentError where a person must act.
    """

    @property
    def title(self) -> str:
        """Returns what is read, for people."""

    @property
    def identity(self) -> str | None:
        """Of the table itself: another one of its name has another one. None for a query."""

    @property
    def wholly(self) -> bool:
        """True where nothing orders the rows: they are read as they come, all of them."""

    @property
    def tracks(self) -> bool:
        """True where a change column orders the rows, before the order column."""

    @property
    def first(self) -> str:
        """The name of the first column of the order; empty where nothing orders the rows."""

    @property
    def order_kinds(self) -> str:
        """Returns the kinds of the columns that put rows in order, as people read them.

        It is another text once one of them has a type of another kind: its values are put in
        another order then. Asked in each plan, by sensors, and in tasks before a part is read.
        """

    def now(self) -> str:
        """The server's clock, as ISO 8601 text.

        Called once for each plan, and for lag.
        """

    def newest(self) -> Pair:
        """The last pair there is now, none beyond the server's clock.

        Called for each micro-batch that looks for new rows, and for lag.

        Returns:
            `NOTHING` for a table without rows that have a place in the order.
        """

    def has_rows(self) -> bool:
        """Returns whether there is any row at all, with or without a place in the order.

        Called for each micro-batch that finds no newest pair.
        """

    def unordered_rows(self) -> int:
        """Returns how many rows have no place in the order: a null in one of its columns.

        Called when a first load begins, and once for each session and state.
        """

    def is_before(self, one: Pair, other: Pair) -> bool:
        """Returns whether a pair comes before another.

        Called whenever positions are compared; values are compared by the server, by the columns'
        own types and collations.

        Args:
            one: a pair of a change value and an order value; a missing value comes before every
                other.
            other: the pair that it is compared with.

        Returns:
            False also for pairs that are equal.
        """

    def estimate(self, rows: Rows) -> int:
        """Returns how many rows there are, about.

        Called once for each span of a first load, to choose the size of parts.

        Args:
            rows: what is left of the load.

        Returns:
            Rows; a guess of the server's statistics will do.
        """

    def count(self, rows: Rows) -> int:
        """Returns how many rows there are; of very many, about."""

    def size(self, rows: Rows) -> tuple[int, int]:
        """Returns how many rows there are, and how many bytes their values have.

        Called while parts are planned, for each part that may be too long.

        Args:
            rows: the bounds of the part.

        Returns:
            Rows, and the bytes of their values.
        """

    def age(self, rows: Rows) -> float | None:
        """Seconds since the oldest of the rows was changed; None where nothing tells."""

    def key(self, rows: Rows, most: int) -> str | None:
        """Returns where the first part of a first load ends.

        Called once for each part that is planned.

        Args:
            rows: what is left to be planned.
            most: the most rows of the part.

        Returns:
            The last order value of the first `most` rows; None where there are no more.
        """

    def border(self, rows: Rows, most: int) -> Pair | None:
        """Returns where the first part of the rows after a first load ends.

        Called once for each part that is planned.

        Args:
            rows: what is left to be planned.
            most: the most rows of the part.

        Returns:
            The last pair of the first `most` rows; None where there are no more.
        """

    def before(self, time: str) -> str | None:
        """The last change value before a time.

        Called when a person rewinds to a time.

        Args:
            time: ISO 8601.

        Returns:
            None where changes have no time.
        """

    def at(self, time: str) -> str:
        """A time as a change value.

        Called when a checkpoint of the DataFlow Operator is taken over.

        Args:
            time: ISO 8601.

        Raises:
            PermanentError: changes have no time.
        """

    def notes(self, position: PolledPosition) -> Iterator[str]:
        """Returns what else a person should know: rows that are read later, or slowly.

        Called once for each session and state; the sentences are logged.

        Args:
            position: up to which rows are read.
        """
