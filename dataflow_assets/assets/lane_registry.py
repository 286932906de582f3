"""The registry of a lane: what its run drives and how each flow fares, in Dagster's own storage.

The run of the lane writes it; sensors, and runs of flows' own that wait for a flow, read it.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal, get_args

import dagster as dg

Part = Literal["leaving", "driving"]
"""`leaving`: of a run that has a successor, with what it has still to let go."""
PARTS: tuple[Part, ...] = get_args(Part)


@dataclass(frozen=True)
class FlowState:
    """Status of a flow in its lane, for people. `failing`: it has met an error and tries again."""

    text: str
    failing: bool = False


@dataclass(frozen=True)
class LanePage:
    """The flows that a lane's run drives, each with its status."""

    run: str = ""
    """The id of the run that has written the page; empty where none ever did."""
    at: float = 0.0
    """When it did, in seconds since 1970."""
    flows: Mapping[str, str] = field(default_factory=dict)
    """By the id of a flow the text of its `FlowState`."""
    failing: Sequence[str] = ()
    """Those of them that have met an error and try again."""


class LaneRegistry:
    """The page of the run that drives the lane, which replaces the one before.

    A run that hands over has a page of its own: the newer run writes the lane's page by then.
    """

    def __init__(self, instance: dg.DagsterInstance, lane: str, part: Part = "driving") -> None:
        self._storage = instance.daemon_cursor_storage
        self._key = f"dataflow/lane/{lane}" + ("" if part == "driving" else f"/{part}")

    def read(self) -> LanePage:
        """The newest page; an empty one of a lane that was never driven.

        Called by the sensors `ingest` and `lag` with each tick, and every half second by a run that
        waits for a lane. Raises what Dagster's storage raises.
        """
        text = self._storage.get_cursor_values({self._key}).get(self._key)
        return LanePage(**json.loads(text)) if text else LanePage()

    def write(self, run_id: str, states: Mapping[str, FlowState]) -> None:
        """Replaces the page.

        Called in the run of the lane every ten seconds, and at once when it takes up a flow or lets
        one go. `states` has every flow that it drives or is about to drive, by its id. Raises what
        Dagster's storage raises.
        """
        texts = {name: state.text for name, state in states.items()}
        failing = [name for name, state in states.items() if state.failing]
        page = asdict(LanePage(run_id, time.time(), texts, failing))
        self._storage.set_cursor_values({self._key: json.dumps(page)})
