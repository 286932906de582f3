"""The size of one turn of a flow with a backlog."""

from __future__ import annotations

from dataclasses import replace

from dataflow_assets.contracts import Limit

# Only other backlogs wait for it; beside its pass each turn costs a commit and a wait for a slot.
TURN_SECONDS = 4.0
_FIRST = 1 / 16  # of what the flow allows: nothing is known about its records yet
_LEAST = 1 / 64
_MOST_CHANGE = 4.0  # from one turn to the next: a short one may have met records that are small
# Tasks read so little beside the others, for next to nothing: less would only mean more turns.
_FEW = Limit(records=5_000, bytes=1024 * 1024)

# What a part of a table may hold: as many of them as a turn reads take a second or two.
PART = Limit(records=50_000, bytes=4 * 1024 * 1024)


class Pace:
    """The share of its own limit that one turn of a flow may read: about four seconds' worth.

    Only the pass is counted: what a commit costs beside it does not shrink with the records.
    """

    def __init__(self) -> None:
        self._share = _FIRST

    def limit(self, declared: Limit) -> Limit:
        """The limit of one slice of the next turn; `declared` is the most that the flow allows."""
        return replace(
            declared,
            records=max(min(declared.records, _FEW.records), int(declared.records * self._share)),
            bytes=max(min(declared.bytes, _FEW.bytes), int(declared.bytes * self._share)),
        )

    def note_turn(self, seconds: float) -> None:
        """A turn that read as much as it was allowed to has taken so long."""
        change = min(_MOST_CHANGE, max(0.5, TURN_SECONDS / max(seconds, 0.01)))
        self._share = min(1.0, max(_LEAST, self._share * change))
