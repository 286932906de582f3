"""Flows as one graph of topics and tables: keys, tables with several writers, cycles.

A cycle (two-way sync, a topic rewritten in place) is no mistake of the flows, but Dagster's graph
has none: the edge that would close it is left out, and the asset says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dataflow_assets.contracts import Address
from dataflow_assets.flow import Branch, Flow, asset_key

Key = tuple[str, ...]


@dataclass(frozen=True)
class Node:
    """One branch of one flow: an asset."""

    flow: Flow
    branch: Branch
    key: Key
    table: Key
    source: Key | None
    """Key of what it reads; None where the edge would close a cycle."""

    @property
    def shared(self) -> bool:
        """Whether other flows write the same table."""
        return self.key != self.table


@dataclass(frozen=True)
class Graph:
    """All nodes, the tables that several of them write, and what only outsiders write."""

    nodes: tuple[Node, ...]
    tables: Mapping[Key, Address]
    topics: Mapping[Key, Address]

    def writers(self, table: Key) -> list[Node]:
        """The nodes that write a table."""
        return [node for node in self.nodes if node.table == table]

    def of(self, flow: Flow) -> list[Node]:
        """The nodes of one flow, in the order of its branches."""
        return [node for node in self.nodes if node.flow.id == flow.id]


def build(flows: Iterable[Flow]) -> Graph:
    """The graph of these flows, the same for any order of them."""
    ordered = sorted(flows, key=lambda flow: flow.id)
    pairs = [(flow, branch) for flow in ordered for branch in flow.branches]
    addresses = {asset_key(branch.address): branch.address for _, branch in pairs}
    counts: dict[Key, int] = {}
    for _, branch in pairs:
        key = asset_key(branch.address)
        counts[key] = counts.get(key, 0) + 1
    shared = {key: addresses[key] for key, count in counts.items() if count > 1}
    edges = _Edges()
    nodes = tuple(_node(flow, branch, shared, edges) for flow, branch in pairs)
    sources = {asset_key(flow.source_address): flow.source_address for flow in ordered}
    outside = {key: address for key, address in sources.items() if key not in addresses}
    return Graph(nodes, shared, outside)


def _node(flow: Flow, branch: Branch, shared: Mapping[Key, Address], edges: _Edges) -> Node:
    table, source = asset_key(branch.address), asset_key(flow.source_address)
    key = (*table, flow.slug) if table in shared else table
    return Node(flow, branch, key, table, source if edges.add(source, table) else None)


class _Edges:
    """Edges from source to table; refuses the one that closes a cycle."""

    def __init__(self) -> None:
        self._targets: dict[Key, set[Key]] = {}

    def add(self, source: Key, target: Key) -> bool:
        """False when the target leads back to the source."""
        if self._reaches(target, source):
            return False
        self._targets.setdefault(source, set()).add(target)
        return True

    def _reaches(self, start: Key, end: Key) -> bool:
        seen, waiting = set[Key](), [start]
        while waiting:
            key = waiting.pop()
            if key == end:
                return True
            if key not in seen:
                seen.add(key)
                waiting += self._targets.get(key, ())
        return False
