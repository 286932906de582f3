"""Logs what users should know about the messages of a view."""

from __future__ import annotations

import logging
from collections.abc import Collection

log = logging.getLogger(__name__)


class Notices:
    """The notices of one flow, on the driver."""

    def __init__(self, flow: str, topic: str) -> None:
        self._flow, self._topic = flow, topic
        self._empty: Collection[str] = ()

    def new_partitions(self, names: Collection[str]) -> None:
        """Warns that keys of an upsert table may have moved to a new partition, out of order."""
        if names:
            log.warning(
                "flow %s: %s has new partitions (%s): keys may be in another partition than "
                "before. Of records of one key in two partitions the one read later counts, "
                "and within one micro-batch the one with the later timestamp",
                self._flow,
                self._topic,
                ", ".join(sorted(names)),
            )

    def late(self, number: int, total: int) -> None:
        """Rows of a micro-batch that are dropped, and of all so far."""
        if number:
            log.warning(
                "flow %s: %d rows of %s came when their windows had ended, and are dropped: %d so "
                "far. A longer INTERVAL in its WATERMARK waits for them",
                self._flow,
                number,
                self._topic,
                total,
            )

    def empty(self, partitions: Collection[str]) -> None:
        """Partitions that keep windows from ending; said once of the same ones."""
        if partitions and partitions != self._empty:
            self._empty = partitions
            log.warning(
                "flow %s: no window ends before each partition of %s has a row, and these have "
                "none: %s. SET 'table.exec.source.idle-timeout' = '1 min' does not wait for them",
                self._flow,
                self._topic,
                ", ".join(sorted(partitions)),
            )
