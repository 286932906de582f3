"""Looks at sources without a run, at many at once: promises beside `Source`, `SourceSession`.

As in `capabilities`, the file in the comment above a class asks for it by `isinstance`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Self

import pyarrow as pa

from dataflow_assets.contracts.checkpoint import Lag
from dataflow_assets.contracts.slices import Positions
from dataflow_assets.contracts.source import SourceSession
from dataflow_assets.errors import DataflowError


# cli/preview/live.py
class Peeks(ABC):
    """A session that can be looked into without moving on."""

    @abstractmethod
    def peek(self, after: Positions, limit: int) -> Mapping[str, pa.RecordBatch]:
        """The first records from `after` on in each partition, for a look.

        Called by `dataflow preview`. Without Spark, and nothing is consumed: no checkpoint, no
        consumer group, no server moves.

        Args:
            after: a partition that is missing is read from its beginning; what is gone by now is
                passed over.
            limit: the most records of a partition.

        Returns:
            By partition the columns of a frame or of batches, all of them; `_at` is the offset.
        """


# runs/together.py
class OpensMany(ABC):
    """A source that is opened together with others of its class."""

    @classmethod
    @abstractmethod
    def open_together(cls, sources: Mapping[str, Self]) -> dict[str, SourceSession | DataflowError]:
        """Connects to many of equal `connection_group`, for a look at all of them.

        Called by whoever looks at many flows. The sessions may share a connection: one thread at a
        time uses any of them.

        Args:
            sources: by the flow, as in `open`.

        Returns:
            By the flow its session, or the error that `open` would have raised: what is wrong with
            one topic or table is no other's error.
        """


# runs/together.py
class EndsOfMany(ABC):
    """Sessions that are asked for their ends together."""

    @classmethod
    @abstractmethod
    def ends_together(cls, sessions: Sequence[Self]) -> list[Positions | DataflowError]:
        """The ends of many sources of equal `Source.connection_group`, asked at once.

        Called by whoever looks at many flows, every second or so: it must be cheap.

        Args:
            sessions: open ones of this class, which nobody else uses meanwhile.

        Returns:
            Of each what `end` would have returned, or the error that it would have raised: what is
            wrong with one topic or table is no other's error.
        """


# runs/together.py
class LagsOfMany(ABC):
    """Sessions that are asked for their lags together."""

    @classmethod
    @abstractmethod
    def lags_together(
        cls, asked: Sequence[tuple[Self, Positions | None]]
    ) -> list[Lag | DataflowError]:
        """Returns how far many branches are behind, of sources of equal `Source.connection_group`.

        Called by `dataflow status` and by the lag sensor.

        Args:
            asked: open sessions of this class, of which one may come several times, each with the
                positions of a branch; None for a branch that begins at `start`.

        Returns:
            For each what `lag` would have returned, or the error in its place.
        """
