"""Compares declared tables with those that are stored: for `dataflow check` alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dataflow_assets.errors import DataflowError, Finding
from dataflow_assets.flow import Flow
from dataflow_assets.languages.common.documents import Document
from dataflow_assets.languages.promises import ChecksStored
from dataflow_assets.manifests.load import Loaded

_LEFT = (
    "table {name} is in no `tables` of these files, and its data stays in {place}: declare it "
    "again to go on, or delete the table"
)


def compare(loaded: Loaded) -> Loaded:
    """Adds a finding for each change that a table refuses; such a flow is left out.

    A table that cannot be looked at is a note: it may be reachable where the flow runs. So is a
    table that was declared once, and is stored.
    """
    refused: dict[str, list[Finding]] = {}
    notes: list[Finding] = []
    for flow in loaded.flows:
        document = loaded.documents[flow.id]
        try:
            refused[flow.id] = list(_refusals(flow, document))
        except DataflowError as error:
            message = f"not compared with the table that is stored: {error}"
            notes.append(document.finding(flow.branches[0].place, message, key=True))
    notes += _left_over(loaded)
    refusals = [finding for findings in refused.values() for finding in findings]
    return replace(
        loaded,
        flows=tuple(flow for flow in loaded.flows if not refused.get(flow.id)),
        findings=tuple(sorted({*loaded.findings, *refusals})),
        hints=tuple(sorted({*loaded.hints, *notes})),
    )


def _refusals(flow: Flow, document: Document) -> Iterator[Finding]:
    for branch in flow.resolvable().branches:
        problems = branch.sink.stored_problems() if isinstance(branch.sink, ChecksStored) else ()
        for field, message in problems:
            place = (*branch.place, "fields", *([] if field is None else [field]))
            yield document.finding(place, message)


def _left_over(loaded: Loaded) -> Iterator[Finding]:
    """A note for each stored table that no file declares any more."""
    declared: dict[str, set[str]] = {}
    for _, tables in loaded.tables:
        declared.setdefault(tables.place.catalog, set()).update(tables.names)
    for document, tables in loaded.tables:
        names = declared.pop(tables.place.catalog, None)
        if names is None:
            continue  # another file has said it
        try:
            stored = tables.place.stored_tables()
        except DataflowError as error:
            if not names:  # else each of its tables has a note by now
                message = f"not looked for tables that are not declared any more: {error}"
                yield document.finding(("tables",), message, key=True)
            continue
        for name, place in sorted(stored.items()):
            if name not in names and name.removesuffix("_rejected") not in names:
                yield document.finding(("tables",), _LEFT.format(name=name, place=place), key=True)
