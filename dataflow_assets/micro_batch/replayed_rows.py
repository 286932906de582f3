"""Which records of a message a replay puts back, after steps that may have changed since."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.record import Record


@dataclass(frozen=True)
class Again:
    """One record of those that a message had become: the only one of them that was rejected."""

    n: int
    rows: int | None
    """How many there were; None: an earlier version did not count them."""

    def choose(
        self, found: Sequence[Record], routes: Collection[str | None]
    ) -> list[tuple[int, Record]]:
        """The records to put back of those that the message becomes now, with their indexes.

        Where all of them are filtered out there are none. A message that was one record had
        nothing stored, so it goes back whole. Raises RejectedRecord where nobody can tell which of
        the records is the one that was rejected: another one of them stands in the table already.
        """
        if not found:
            return []
        if (self.rows != 1 and len(found) != (self.rows or len(found))) or self.n >= len(found):
            now = len(found)
            before = f"record {self.n + 1} of {self.rows or 'several'}"
            raise RejectedRecord(
                "encode",
                f"it was {before} that its message became when it was rejected, and the steps make "
                f"{now} of it now: which of them it is cannot be known. Let the steps make as many "
                "again, or store it by hand and delete the entry",
            )
        chosen = list(enumerate(found)) if self.rows == 1 else [(self.n, found[self.n])]
        if not all(record.route in routes for _, record in chosen):
            raise RejectedRecord(
                "encode", "by its steps it goes into another branch now than when it was rejected"
            )
        return chosen
