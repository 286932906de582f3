"""Where branches stand, for sensors: by the mirror, and now and then by the sink itself.

The mirror costs nothing, but nobody tells it of `dataflow reset`, of a restored database, or of
runs on the command line. So the sink is asked when a sensor first looks, and every few minutes;
what it says holds until a run reports another checkpoint.
"""

import logging
import threading
import time
from dataclasses import dataclass
from typing import Any

from dataflow_assets.assets.graph import Key, Node
from dataflow_assets.assets.mirror import positions
from dataflow_assets.contracts import Positions
from dataflow_assets.errors import DataflowError
from dataflow_assets.redaction import mask

TRUTH_SECONDS = 180.0
RETRY_SECONDS = 30.0

log = logging.getLogger("dataflow")


@dataclass(frozen=True)
class _Look:
    """What the sink said, of which manifest, what the mirror was then, when to ask again."""

    manifest: str
    mirror: Any
    positions: Positions | None
    again: float


class Checkpoints:
    """The positions of branches, shared by all sensors of the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asking: dict[Key, threading.Lock] = {}
        self._looks: dict[Key, _Look] = {}

    def positions(self, node: Node, mirror: Any) -> Positions | None:
        """Where the branch stands; None where its sink has no checkpoint.

        Raises DataflowError where there is no mirror and the sink cannot be asked.
        """
        if mirror is None:
            return _stored(node)
        with self._lock:
            asking = self._asking.setdefault(node.key, threading.Lock())
        with asking:
            look = self._looks.get(node.key)
            if look is None or look.manifest != node.flow.hash or look.again <= time.monotonic():
                look = self._looks[node.key] = self._asked(node, mirror, look)
        return look.positions if look.mirror == mirror else positions(mirror)

    def _asked(self, node: Node, mirror: Any, before: _Look | None) -> _Look:
        """A sink that cannot be asked changes nothing: the run that needs it says so."""
        try:
            found, wait = _stored(node), TRUTH_SECONDS
        except DataflowError as error:
            log.info(
                mask(f"{node.branch.address}: no checkpoint can be read: {error}", [node.flow])
            )
            same = before is not None and before.mirror == mirror
            found = before.positions if before is not None and same else positions(mirror)
            wait = RETRY_SECONDS
        return _Look(node.flow.hash, mirror, found, time.monotonic() + wait)


def _stored(node: Node) -> Positions | None:
    """By the sink itself."""
    flow = node.flow.resolved()
    branch = next(branch for branch in flow.branches if branch.id == node.branch.id)
    checkpoint = branch.sink.peek(flow.target(branch))
    return checkpoint.positions if checkpoint and checkpoint.positions else None


checkpoints = Checkpoints()
