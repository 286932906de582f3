"""Which of the flows that a lane has let go comes next with its last events."""

from collections.abc import Sequence

from dataflow_assets.assets.flow_events import FlowEvents
from dataflow_assets.assets.graph import in_order


class LastEvents:
    """The flows whose last events wait; used by the thread that writes the events of the run.

    A table comes before those that are filled from it. All flows are looked through once for all
    that end together, not once for each of them.
    """

    def __init__(self) -> None:
        self._new: list[FlowEvents] = []
        self._ordered: list[FlowEvents] = []

    def __bool__(self) -> bool:
        return bool(self._new or self._ordered)

    def add(self, events: FlowEvents) -> None:
        """Takes a flow that the lane has let go."""
        self._new.append(events)

    def next(self) -> FlowEvents:
        """Gives one that reads from none of the others; raises IndexError where none waits."""
        if self._new:
            self._ordered = _ordered([*self._ordered, *self._new])
            self._new = []
        return self._ordered.pop(0)


def _ordered(events: Sequence[FlowEvents]) -> list[FlowEvents]:
    return [events[at] for at in in_order([one.nodes for one in events])]
