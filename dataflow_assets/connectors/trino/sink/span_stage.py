"""The table beside the target in which the rows of one span wait, where they are many."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from contextlib import suppress

import msgspec

from dataflow_assets.connectors.trino.client import TrinoClient
from dataflow_assets.connectors.trino.errors import ANY
from dataflow_assets.connectors.trino.table import stage
from dataflow_assets.connectors.trino.table.stage import TrinoStaged
from dataflow_assets.connectors.trino.table.table import TrinoPlace


class SpanStage:
    """Of one session: each span has another place. One left behind costs space until a next run."""

    def __init__(self, client: TrinoClient, target: TrinoPlace, branch: str) -> None:
        self._client, self._target, self._branch = client, target, branch
        self.place = target
        self._here = set[str]()
        """Attempts whose rows are in it."""

    def begin(self, epoch: int) -> TrinoPlace:
        name = stage.name(self._branch, epoch, uuid.uuid4().hex[:8])
        self.place, self._here = self._target.beside(name), set()
        return self.place

    def note(self, attempts: Iterable[str]) -> None:
        """All rows of these attempts are in it, also those that receipts have brought."""
        self._here.update(attempts)

    def without_stored(self, staged: TrinoStaged) -> TrinoStaged:
        """Without the rows that are in it: they must not be put there once more."""
        return (
            msgspec.structs.replace(staged, inline="") if staged.attempt in self._here else staged
        )

    def drop(self) -> None:
        if self._here:
            with suppress(*ANY):
                stage.drop(self._client, self.place)

    def drop_older(self, epoch: int) -> None:
        """Drops the stages of this branch that sessions up to this epoch have left."""
        with suppress(*ANY):
            for each in stage.leftovers(self._client, self._target, self._branch, epoch):
                stage.drop(self._client, each)
