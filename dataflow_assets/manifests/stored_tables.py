"""What flows declare, held against the tables that are stored: for `dataflow check` alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dataflow_assets.errors import DataflowError, Finding
from dataflow_assets.flow import Flow
from dataflow_assets.manifests.dialects.documents import Document
from dataflow_assets.manifests.load import Loaded


def compared(loaded: Loaded) -> Loaded:
    """The same, with a finding for each change that a table refuses; such a flow is left out.

    A table that cannot be looked at is a note: it may be reachable where the flow runs.
    """
    refused: dict[str, list[Finding]] = {}
    notes: list[Finding] = []
    for flow in loaded.flows:
        document = loaded.documents[flow.id]
        try:
            refused[flow.id] = list(_refused(flow, document))
        except DataflowError as error:
            message = f"not compared with the table that is stored: {error}"
            notes.append(document.finding(flow.branches[0].place, message, key=True))
    found = [finding for findings in refused.values() for finding in findings]
    return replace(
        loaded,
        flows=tuple(flow for flow in loaded.flows if not refused.get(flow.id)),
        findings=tuple(sorted({*loaded.findings, *found})),
        hints=tuple(sorted({*loaded.hints, *notes})),
    )


def _refused(flow: Flow, document: Document) -> Iterator[Finding]:
    for branch in flow.resolvable().branches:
        for field, message in branch.sink.stored_problems():
            place = (*branch.place, "fields", *([] if field is None else [field]))
            yield document.finding(place, message)
