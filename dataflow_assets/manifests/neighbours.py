"""Rules between flows: one identity each, names that stay apart once they are mangled, circles."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from dataflow_assets.contracts import Address, Sink
from dataflow_assets.errors import Finding
from dataflow_assets.flow import Flow, asset_key
from dataflow_assets.languages.common.documents import Document, Path

Pair = tuple[Flow, Document]
_NAME: Path = ("metadata", "name")
_SOURCE: Path = ("spec", "source", "config")
_ERRORS: Path = ("spec", "errors", "config")
NAMED = 3


def clashes(flows: list[Pair]) -> Iterator[tuple[Document, Finding]]:
    """A finding in every flow that gets in another one's way."""
    yield from _duplicates(
        flows, lambda flow: flow.id, "duplicate flow name {0}, also defined in {1}"
    )
    single = list({flow.id: (flow, document) for flow, document in flows}.values())
    yield from _duplicates(
        single,
        lambda flow: flow.slug,
        "in Dagster the flow would be called {0}, and so would the one in {1}: rename one",
    )
    yield from _duplicates(
        [pair for pair in single if pair[0].source.traits.reserved],
        lambda flow: flow.source.traits.reserved,
        "{0} is also read by the flow in {1}: each of the two would take changes from the other",
        _SOURCE,
    )
    yield from _same_keys(flows)
    yield from _folders_inside(flows)


def cycles(flows: list[Pair]) -> Iterator[Finding]:
    """A note at every flow whose rows come back to its source through the flows of these files.

    Called when manifests are loaded. A cycle may be meant (two tables that follow each other);
    nobody but the steps of its flows can end it.
    """
    by_source: dict[tuple[str, ...], list[Pair]] = {}
    for flow, document in flows:
        for key in {asset_key(one) for one in flow.read_addresses}:
            by_source.setdefault(key, []).append((flow, document))
    for flow, document in flows:
        if way := _way_back(flow, by_source):
            names = " -> ".join(one.id for one in (*way, flow))
            message = (
                f"flows in a circle: {names}. Each record comes back, and goes round for ever "
                "unless a step filters what was copied; Dagster's graph leaves one edge out"
            )
            yield document.finding(_NAME, message)


def _way_back(flow: Flow, by_source: Mapping[tuple[str, ...], list[Pair]]) -> tuple[Flow, ...]:
    """The shortest chain of flows from this one's targets to its source; empty for none."""
    ways: deque[tuple[Flow, ...]] = deque([(flow,)])
    seen = {flow.id}
    while ways:
        way = ways.popleft()
        for branch in way[-1].branches:
            for following, _ in by_source.get(asset_key(branch.address), ()):
                if following.id == flow.id:
                    return way if len(way) > 1 else ()
                if following.id not in seen:
                    seen.add(following.id)
                    ways.append((*way, following))
    return ()


def _duplicates(
    flows: list[Pair], name: Callable[[Flow], str], message: str, at: Path = _NAME
) -> Iterator[tuple[Document, Finding]]:
    groups: dict[str, list[Document]] = {}
    for flow, document in flows:
        groups.setdefault(name(flow), []).append(document)
    for shared, documents in groups.items():
        for document in documents if len(documents) > 1 else ():
            others = _places(documents, document)
            yield document, document.finding(at, message.format(shared, others))


def _places(documents: list[Document], own: Document) -> str:
    others = [_where(document) for document in documents[: NAMED + 1] if document is not own]
    more = len(documents) - 1 - len(others[:NAMED])
    return ", ".join(others[:NAMED]) + (f" and {more} more" if more else "")


def _where(document: Document) -> str:
    return f"{document.file}:{document.places[()].line}"


def _same_keys(flows: list[Pair]) -> Iterator[tuple[Document, Finding]]:
    """Two topics or tables that would be one asset: `shop.orders` and `shop_orders`."""
    users: dict[tuple[str, ...], dict[Address, list[tuple[Document, Path]]]] = {}
    for flow, document in flows:
        for address, path in _addresses(flow):
            users.setdefault(asset_key(address), {}).setdefault(address, []).append(
                (document, path)
            )
    for key, by_address in users.items():
        if len(by_address) > 1:
            yield from _collision("/".join(key), by_address)


def _addresses(flow: Flow) -> Iterator[tuple[Address, Path]]:
    for address in flow.read_addresses:
        yield address, ("spec", "source", "config")
    for branch in flow.branches:
        yield branch.address, branch.place


def _collision(
    key: str, by_address: dict[Address, list[tuple[Document, Path]]]
) -> Iterator[tuple[Document, Finding]]:
    for address, users in by_address.items():
        first_users = (u[0][0] for a, u in by_address.items() if a != address)
        others = " and ".join(_where(document) for document in islice(first_users, NAMED))
        message = (
            f"its asset key {key} is also that of something else in {others}; give one of them a "
            "connection name of its own"
        )
        for document, path in users:
            yield document, document.finding(path, message, key=True)


def _folders_inside(flows: list[Pair]) -> Iterator[tuple[Document, Finding]]:
    """A folder inside another flow's, or error records among the rows of a sink."""
    ends = [(*end, document) for flow, document in flows for end in _folders(flow)]
    written = {folder: document for folder, _, document in ends}
    sinks = {folder: document for folder, path, document in ends if path != _ERRORS}
    for folder, path, document in ends:
        around = (folder[:size] for size in range(1, len(folder)))
        outer = next((written[one] for one in around if one in written), None)
        if outer is None and path == _ERRORS:
            outer = sinks.get(folder)
        if outer is not None:
            message = (
                f"its folder is in one that is written to in {_where(outer)}: readers of that one "
                "would read the files of both; choose folders side by side"
            )
            yield document, document.finding(path, message, key=True)


def _folders(flow: Flow) -> Iterator[tuple[tuple[str, ...], Path]]:
    ends: list[tuple[object, Path]] = [(branch.sink, branch.place) for branch in flow.branches]
    ends.append((flow.policies.rejects.sink, _ERRORS))
    folders = ((sink.traits.folder, path) for sink, path in ends if isinstance(sink, Sink))
    return ((folder, path) for folder, path in folders if folder)
