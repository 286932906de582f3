"""A followed database whose publication is narrowed for a while, as people do by mistake.

The flow must stop, whether its driver runs meanwhile or not, and say which statement of the
command line loads the tables again; after that the copy must be whole.
"""

from __future__ import annotations

from typing import ClassVar

from tests.stress.chaos_driver import Driver
from tests.stress.chaos_pgbench import Pgbench
from tests.systems import Config

NARROWED = "narrowed"
"""The kind: something is left out of the publication, and comes back."""
AGAIN = ("--from", "earliest", "--table", "truncate")
"""The way back that the error must name."""
MISSED = 40  # transactions while the publication is narrowed
SECONDS = 120.0  # until the flow has stopped
_WAYS = (
    ("DROP TABLE history", "ADD TABLE history"),
    ("SET (publish = 'insert')", "SET (publish = 'insert, update, delete, truncate')"),
    ("SET TABLE {tables} WHERE (aid > 0)", "SET TABLE {tables}"),
)
_TABLES = "branches, tellers, history, accounts"


class Narrowed(Pgbench):
    """The tables of pgbench, loaded by the flow itself."""

    kinds: ClassVar[tuple[str, ...]] = (NARROWED, "driver", NARROWED)

    def source(self) -> Config:
        """Loads the tables: the way back needs that."""
        return super().source() | {"snapshotMode": "initial"}

    def narrow(self) -> None:
        """Leaves something out of the publication, and puts it back after some transactions."""
        narrowing, restoring = self._chance.choice(_WAYS)
        self._run(f"ALTER PUBLICATION {self._schema} {narrowing.format(tables=_TABLES)}")
        self.send(MISSED)
        self._run(f"ALTER PUBLICATION {self._schema} {restoring.format(tables=_TABLES)}")

    @staticmethod
    def expect_stopped(driver: Driver) -> None:
        """Raises AssertionError where the flow goes on, or does not say why and what to do."""
        driver.until(lambda: False, SECONDS)
        assert not driver.alive, "the flow has gone on with a publication that was narrowed"
        said = driver.ended()
        assert "publication" in said, said
        assert " ".join(AGAIN) in said, said
