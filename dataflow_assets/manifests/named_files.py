"""The files that manifests name, such as schemas, held against what is on the disk."""

from __future__ import annotations

from collections.abc import Iterator

from dataflow_assets.contracts import Connector
from dataflow_assets.errors import Finding
from dataflow_assets.flow import Flow
from dataflow_assets.manifests.dialects.documents import Document, Path


def unusable(flows: list[tuple[Flow, Document]]) -> Iterator[tuple[Document, Finding]]:
    """A finding for every file that a flow needs and that cannot be read, or used."""
    for flow, document in flows:
        for base, one in _ends(flow):
            for key, message in one.file_problems():
                yield document, document.finding((*base, key), message)


def _ends(flow: Flow) -> Iterator[tuple[Path, Connector]]:
    yield ("spec", "source", "config"), flow.source
    yield from ((branch.place, branch.sink) for branch in flow.branches)
