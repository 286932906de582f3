"""Flows that go back to their lanes because others have: the outage of their servers is over.

Without this, two hundred flows whose database was down would need two hundred runs of their own,
eight at a time, before the last of them is driven again.
"""

import time
from collections.abc import Mapping, Sequence

from dataflow_assets.assets.lane_evictions import Eviction
from dataflow_assets.flow import Flow

SETTLED_SECONDS = 30.0  # after which its lane has surely looked, and has left the flow out

Server = tuple[str, str]
"""The system, and the connection as asset keys name it."""


def flows_to_return(flows: Sequence[Flow], known: Mapping[str, Eviction]) -> list[Flow]:
    """The flows that need no run of their own to go back.

    Called by the sensor `ingest` with each tick. A flow that leaves again soon after is not among
    them: then its own runs show what is wrong.

    Args:
        flows: those that are switched on.
        known: by their ids the evictions of those that have ever left a lane.

    Returns:
        Flows that have left with an error that may pass, once, and of whose servers each has been
        used since by a run of another flow that has succeeded. Not within half a minute.
    """
    back = [
        (known[flow.id].back_at, _servers(flow))
        for flow in flows
        if flow.id in known and known[flow.id].back_at
    ]
    return [flow for flow in flows if flow.id in known and _is_freed(flow, known[flow.id], back)]


def _is_freed(flow: Flow, left: Eviction, back: Sequence[tuple[float, frozenset[Server]]]) -> bool:
    if not left.passing or left.times > 1 or not left.out(flow):
        return False
    if time.time() - left.at < SETTLED_SECONDS:
        return False
    works = frozenset[Server]().union(*(servers for at, servers in back if at > left.at))
    return _servers(flow) <= works


def _servers(flow: Flow) -> frozenset[Server]:
    ends = [flow.source.address(), *(branch.sink.address() for branch in flow.branches)]
    return frozenset((end.system, end.connection) for end in ends)
