"""For how long a task that delivers nothing may be busy all the same.

A poll of Debezium's connectors returns nothing while they begin again after a lost connection, and
while they wait for a replication slot that another process reads.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

SLOT_RETRIES, _SLOT_DELAY = "slot.max.retries", "slot.retry.delay.ms"
_RESTART = "retriable.restart.connector.wait.ms"
_PAUSE = 10_000  # ms: Debezium's own default of both pauses
_CONNECTS = 5.0  # seconds until the first attempt to get the slot has failed, at most
_START = 20.0  # seconds until another attempt of the whole connector has failed, at most


class Busy:
    """The state of one task, from its start on."""

    def __init__(self, config: Mapping[str, str]) -> None:
        slot = _number(config, SLOT_RETRIES, 0) * _number(config, _SLOT_DELAY, _PAUSE) / 1_000
        self._again = slot + _number(config, _RESTART, _PAUSE) / 1_000 + _START
        self.until = time.monotonic() + slot + _CONNECTS * (SLOT_RETRIES in config)
        """Up to that moment it is not quiet, by `time.monotonic`."""

    def note_failure(self) -> None:
        """A poll has met a temporary error: the next poll may return nothing for that reason."""
        self.until = time.monotonic() + self._again

    def note_delivery(self) -> None:
        """A poll has delivered records: nothing is in its way."""
        self.until = 0.0


def _number(config: Mapping[str, str], key: str, default: int) -> int:
    value = config.get(key, "").strip()
    return int(value) if value.isdecimal() else default
