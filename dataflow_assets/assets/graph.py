"""Flows as one graph of topics and tables: keys, tables with several writers, cycles.

A cycle (two-way sync, a topic rewritten in place) is no mistake of the flows, but Dagster's graph
has none: the edge that would close it is left out, and the asset says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dataflow_assets.contracts import Address
from dataflow_assets.flow import Branch, Flow, asset_key

Key = tuple[str, ...]


@dataclass(frozen=True)
class AssetNode:
    """One branch of one flow: an asset."""

    flow: Flow
    branch: Branch
    key: Key
    table: Key
    source: Key | None
    """Key of what it reads; None where the edge would close a cycle."""
    also: tuple[Key, ...] = ()
    """Keys of what it reads beside that, without those that would close a cycle."""

    @property
    def is_shared(self) -> bool:
        return self.key != self.table


@dataclass(frozen=True)
class ErrorTableNode:
    """A table that is an error sink, and no flow's own target."""

    address: Address
    flows: tuple[Flow, ...]
    sources: tuple[Key, ...]
    """What those flows read, without what would close a cycle."""


@dataclass(frozen=True)
class Graph:
    """All nodes, the tables that several of them write, error sinks, and what outsiders write."""

    nodes: tuple[AssetNode, ...]
    tables: Mapping[Key, Address]
    topics: Mapping[Key, Address]
    errors: Mapping[Key, ErrorTableNode] = field(default_factory=dict)
    upstream: Mapping[Key, tuple[Key, ...]] = field(default_factory=dict)
    """By key of what outsiders write, or of a node whose source a flow writes: what manifests say
    that the source is made of, without what would close a cycle."""

    @property
    def flows(self) -> list[Flow]:
        """Each flow once, in the order of their ids."""
        return list({node.flow.id: node.flow for node in self.nodes}.values())

    def writers(self, table: Key) -> list[AssetNode]:
        return [node for node in self.nodes if node.table == table]

    def of(self, flow: Flow) -> list[AssetNode]:
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
    errors = _errors([flow for flow in ordered if _errors_of(flow) not in addresses], edges)
    sources = {asset_key(one): one for flow in ordered for one in flow.read_addresses}
    inside = {*addresses, *errors}
    outside = {key: address for key, address in sources.items() if key not in inside}
    return Graph(nodes, shared, outside, errors, _upstream(nodes, outside, edges))


def upstream(nodes: Iterable[AssetNode], node: AssetNode) -> list[AssetNode]:
    """The nodes that write what this one reads, directly or by others; the earliest comes first.

    Edges close no cycle, so this ends.
    """
    candidates = list(nodes)
    ordered: dict[Key, AssetNode] = {}
    for one in candidates:
        if one.table in (node.source, *node.also):
            ordered |= {each.key: each for each in (*upstream(candidates, one), one)}
    return list(ordered.values())


def in_order(flows: Sequence[Sequence[AssetNode]]) -> list[int]:
    """The places of these flows, each behind those that write what it reads.

    What each reads is looked up once. Flows may read from each other in a circle, although their
    nodes do not: of those the one comes first that has the fewest in front of it.

    Args:
        flows: of each its nodes.
    """
    nodes = [node for flow in flows for node in flow]
    place = {node.key: at for at, flow in enumerate(flows) for node in flow}
    waits = {
        at: {place[one.key] for node in flow for one in upstream(nodes, node)} - {at}
        for at, flow in enumerate(flows)
    }
    order: list[int] = []
    while waits:
        order.append(min(waits, key=lambda at: len(waits[at])))
        del waits[order[-1]]
        for others in waits.values():
            others.discard(order[-1])
    return order


def _upstream(
    nodes: Sequence[AssetNode], outside: Mapping[Key, Address], edges: _Edges
) -> dict[Key, tuple[Key, ...]]:
    keys_above: dict[Key, tuple[Key, ...]] = {}
    for node in nodes:
        source = asset_key(node.flow.source_address)
        holder, table = (source, source) if source in outside else (node.key, node.table)
        above = keys_above.get(holder, ())
        new = [key for key in node.flow.upstream if key not in above and edges.add(key, table)]
        if new:
            keys_above[holder] = (*above, *new)
    return keys_above


def _errors_of(flow: Flow) -> Key | None:
    address = flow.policies.rejects.address
    return asset_key(address) if address else None


def _errors(flows: Sequence[Flow], edges: _Edges) -> dict[Key, ErrorTableNode]:
    tables: dict[Key, ErrorTableNode] = {}
    for flow in flows:
        address = flow.policies.rejects.address
        if address is None:
            continue
        key, source = asset_key(address), asset_key(flow.source_address)
        node = tables.get(key, ErrorTableNode(address, (), ()))
        new = (source,) if source not in node.sources and edges.add(source, key) else ()
        tables[key] = ErrorTableNode(node.address, (*node.flows, flow), (*node.sources, *new))
    return tables


def _node(flow: Flow, branch: Branch, shared: Mapping[Key, Address], edges: _Edges) -> AssetNode:
    table, source = asset_key(branch.address), asset_key(flow.source_address)
    key = (*table, flow.slug) if table in shared else table
    drawn = source if edges.add(source, table) else None
    others = map(asset_key, flow.read_addresses[1:])
    also = tuple(one for one in others if edges.add(one, table))
    return AssetNode(flow, branch, key, table, drawn, also)


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
