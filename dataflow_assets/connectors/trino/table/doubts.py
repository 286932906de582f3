"""The checkpoints of statements in doubt, each in a row of its own beside the row of its branch.

A flow that appends remembers each statement that has failed until another one has succeeded. With
their checkpoints in one row, some hundred failures would make a statement that Trino refuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from dataflow_assets.connectors.trino.client import TrinoClient, literal
from dataflow_assets.connectors.trino.errors import ANY
from dataflow_assets.connectors.trino.table.document import TrinoDocument, TrinoPending, parse
from dataflow_assets.connectors.trino.table.stage import length_of, room
from dataflow_assets.connectors.trino.table.table import TrinoPlace
from dataflow_assets.contracts import Checkpoint, Target

SUFFIX = " in doubt"
"""Behind the id of a branch: the id of these rows. Their stamp is the id of the query."""


@dataclass(frozen=True)
class Doubts:
    """The rows of one branch, on the driver. Methods raise Failure where Trino does not answer."""

    client: TrinoClient
    place: TrinoPlace
    """The table of checkpoints."""
    target: Target
    most: int
    """Characters of one statement."""

    @property
    def id(self) -> str:
        return f"{self.target.id}{SUFFIX}"

    def keep(self, statements: Sequence[TrinoPending], epoch: int) -> None:
        """Stores the checkpoints, before the row of the branch forgets them.

        A row that is stored twice says the same twice; one that no branch names is harmless.

        Args:
            statements: those in doubt.
            epoch: of the session.
        """
        rows = [self._row(one, epoch) for one in statements]
        for values in divide(rows, room(self.most)):
            self.client.run(f"INSERT INTO {self.place.quoted_name} VALUES {', '.join(values)}")  # noqa: S608 - quoted

    def checkpoint(self, query: str) -> Checkpoint | None:
        """What is true if this statement has stored its rows; None where the row is gone."""
        found = self.client.value(
            f"SELECT state FROM {self.place.quoted_name} "  # noqa: S608 - quoted
            f"WHERE id = {literal(self.id)} AND stamp = {literal(query)} LIMIT 1"
        )
        return parse(str(found)).checkpoint if found else None

    def drop(self, epoch: int) -> None:
        """Removes the rows once nothing is in doubt; what fails costs space until the next time.

        Those of later sessions stay: a driver that is late must not remove what the driver that has
        taken over needs.

        Args:
            epoch: of the session.
        """
        mine = f"id = {literal(self.id)}"
        with suppress(*ANY):
            place = self.place.quoted_name
            self.client.run(f"DELETE FROM {place} WHERE {mine} AND epoch <= {epoch}")  # noqa: S608
            self.client.run(f"ALTER TABLE {place} EXECUTE optimize WHERE {mine}")

    def _row(self, statement: TrinoPending, epoch: int) -> str:
        state = msgspec.json.encode(TrinoDocument(statement.checkpoint)).decode()
        texts = literal(self.id), literal(self.target.flow), literal(statement.query)
        return f"({texts[0]}, {texts[1]}, {epoch}, {texts[2]}, {literal(state)})"


def divide(rows: Sequence[str], most: int) -> Iterator[list[str]]:
    """Rows in groups of at most so many characters; a longer row is a group of its own."""
    group, length = list[str](), 0
    for row in rows:
        size = length_of(row) + len(", ")
        if group and length + size > most:
            yield group
            group, length = [], 0
        group.append(row)
        length += size
    if group:
        yield group
