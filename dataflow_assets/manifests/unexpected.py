"""A mistake of this program while a file is read is a finding of that file: all others go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from dataflow_assets.errors import Finding, describe_unexpected
from dataflow_assets.flow import Flow
from dataflow_assets.languages.common.documents import Document, NodePlace
from dataflow_assets.languages.common.reading import Reading
from dataflow_assets.manifests.secret_refs import references

Pair = tuple[Flow, Document]
Check = Callable[[list[Pair]], Iterable[tuple[Document, Finding]]]


def message(error: Exception) -> str:
    """Returns what to say of an error that nobody meant, and that goes on."""
    return (
        f"cannot be read: {describe_unexpected(error)}: report it with this file; the others go on"
    )


def of_file(file: str, error: Exception) -> Finding:
    return Finding(file, 1, 1, "file", message(error))


def whole(file: str) -> Document:
    """Returns what stands for a file in findings about all of it."""
    return Document(file, {}, {(): NodePlace(1, 1, 1, 1)})


def readings(document: Document, read: Callable[[], Iterable[Reading]]) -> Sequence[Reading]:
    """Returns what a document comes to, or the finding that it cannot be read."""
    try:
        return list(read())
    except Exception as error:  # noqa: BLE001 - whatever it is, the other files go on
        return [Reading(document, (document.finding((), message(error)),))]


def each(flows: Sequence[Pair], check: Check) -> Iterator[tuple[Document, Finding]]:
    """Checks flow by flow; what a check throws about one is a finding of that one."""
    for flow, document in flows:
        try:
            yield from list(check([(flow, document)]))
        except Exception as error:  # noqa: BLE001 - whatever it is, the other flows go on
            yield document, document.finding((), message(error))


def ask_names(flows: list[Pair]) -> Iterator[tuple[Document, Finding]]:
    """Asks each flow all that flows are compared by, so that comparing throws no more.

    Called when manifests are loaded, by `each`, before flows are held against each other.
    """
    for flow, _ in flows:
        ends = (flow.source, *(branch.sink for branch in flow.branches))
        _ = flow.slug, flow.read_addresses, flow.source.traits.reserved
        _ = [(end.address(), end.spellings()) for end in ends]
        _ = [branch.id for branch in flow.branches]
        _ = [branch.sink.traits for branch in flow.branches]
        _ = list(references(flow))
    return iter(())
