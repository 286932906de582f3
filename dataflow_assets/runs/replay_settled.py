"""Which entries the flow itself is through with.

An error sink elsewhere has an entry before the rows beside it are committed. After a crash in
between the flow reads the record again, and stores it, or rejects it again under the same id. So
a replay leaves such an entry alone until the flow's own checkpoint has passed the record.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from dataflow_assets.contracts import Checkpoint, Entry
from dataflow_assets.flow import Flow
from dataflow_assets.sdk.record_ids import REPLAY, place_of

log = logging.getLogger(__name__)


class Settled:
    """Settles entries by the flow's own checkpoints.

    Those of tables tell nothing: all their entries count.
    """

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._known: dict[str, Checkpoint | None] = {}

    def only(self, entries: Iterable[Entry]) -> list[Entry]:
        """Returns those that the flow will not read again; a warning counts the others."""
        judged = [(self._has_passed(entry), entry) for entry in entries]
        if left := sum(not passed for passed, _ in judged):
            log.warning(
                "flow %s: %d rejected records are not replayed yet: the flow stopped before it "
                "committed what it read with them, and reads them again. Run the flow first",
                self._flow.id,
                left,
            )
        return [entry for passed, entry in judged if passed]

    def _has_passed(self, entry: Entry) -> bool:
        """False where the branch that rejected it has still to commit its record."""
        branch_id = entry.branch.removesuffix(REPLAY)
        if branch_id not in self._known:
            branches = [branch for branch in self._flow.branches if branch.stored_id == branch_id]
            looked = [branch.sink.peek(self._flow.target(branch)) for branch in branches]
            self._known[branch_id] = next(iter(looked), None)
        checkpoint, place = self._known[branch_id], place_of(entry.id)
        if checkpoint is None or place is None or checkpoint.reading != entry.reading:
            return True  # the flow has started over since, or not at all
        partition, offset = place
        position = checkpoint.positions.get(partition)
        return not isinstance(position, int) or offset < position
