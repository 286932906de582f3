"""Rules between the fields of a DataFlow manifest, and between its source and its sinks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dataflow_assets import registry
from dataflow_assets.contracts import Sink, Source
from dataflow_assets.contracts.declared import ChoosesColumns
from dataflow_assets.errors import Finding
from dataflow_assets.flow import Branch, loops, split_list
from dataflow_assets.languages.common.documents import Document, Path
from dataflow_assets.languages.common.keys import suggest
from dataflow_assets.languages.dataflow import model

_ANNOTATIONS = (
    model.SOURCE_CONNECTION,
    model.SINK_CONNECTION,
    model.OWNERS,
    model.LANE,
    model.UPSTREAM,
)
KEEPING = frozenset({"router", "filter"})  # steps that leave the fields of a record alone
ERRORS: Path = ("spec", "errors")


def of_flow(
    document: Document,
    manifest: model.Manifest,
    source: Source,
    branches: Sequence[Branch],
    errors: Sink | None,
) -> Iterator[Finding]:
    """Everything that the fields of a manifest say against each other, at its place.

    Args:
        document: the manifest.
        manifest: what it says outside of source, steps and sinks.
        source: of the flow.
        branches: its targets, each with the place of its sink.
        errors: the error sink, where there is one.
    """
    yield from _of_fields(document, manifest)
    yield from _of_errors(document, branches, errors)
    if manifest.spec.strict_idempotency and source.type != "kafka":
        yield from _not_idempotent(document, branches)
    # Records that come again would be duplicates in a table that is appended to.
    for branch in branches:
        if (rereads := source.traits.rereads) and not branch.sink.traits.upserts:
            message = (
                f"is appended to, but the source reads rows again with {rereads}: use a "
                "sink that upserts, or change that in the source"
            )
            yield document.finding(branch.place, message, key=True)
    yield from _adding(document, source, branches)
    yield from _keys_left_out(document, manifest, source, branches)
    yield from _looping(document, source, branches, errors)


def _of_fields(document: Document, manifest: model.Manifest) -> Iterator[Finding]:
    spec = manifest.spec
    if spec.replicas > 1 and spec.source.type != "kafka":
        message = f"more than 1 needs a kafka source, not {spec.source.type}; allowed: 0, 1"
        yield document.finding(("spec", "replicas"), message)
    for name, value in manifest.metadata.annotations.items():
        path: Path = ("metadata", "annotations", name)
        if name.startswith("dataflow-assets/") and name not in _ANNOTATIONS:
            yield document.finding(path, f"unknown key; {suggest(name, _ANNOTATIONS)}", key=True)
        elif name == model.RESET and value not in ("true", "false"):
            yield document.finding(path, 'must be "true", or "false" for no reset')
        elif name in _ANNOTATIONS and not value.strip(" ,"):
            yield document.finding(path, "must not be empty")
        elif name == model.LANE and not model.LANE_NAME.fullmatch(value):
            message = "must be letters a-z, digits and `-`, without `-` at an end, at most 40"
            yield document.finding(path, message)
        elif name == model.UPSTREAM and not all(
            map(model.UPSTREAM_KEY.fullmatch, split_list(value))
        ):
            message = "must be asset keys such as nessie/lake/shop/orders, separated by commas"
            yield document.finding(path, message)


def _not_idempotent(document: Document, branches: Iterable[Branch]) -> Iterator[Finding]:
    """Finds each sink that would store a record twice; called for sources other than Kafka."""
    for branch in branches:
        if not branch.sink.traits.upserts or not getattr(branch.sink, "conflict_key", True):
            message = (
                "would store a record twice that is read twice, which strictIdempotency refuses: "
                "set upsertMode and conflictKey, or use a sink that has them"
            )
            yield document.finding(branch.place[:-1], message, key=True)


def _adding(document: Document, source: Source, branches: Iterable[Branch]) -> Iterator[Finding]:
    """Columns that the source gets later need a sink that can add them, or leave them out."""
    for branch in branches:
        if reason := _no_columns(source, branch.sink):
            yield document.finding(branch.place, reason, key=True)


def _keys_left_out(
    document: Document, manifest: model.Manifest, source: Source, branches: Iterable[Branch]
) -> Iterator[Finding]:
    """Each record would be rejected, unless a step makes a field of the name."""
    if not isinstance(source, ChoosesColumns) or not KEEPING.issuperset(
        step.type for step in manifest.spec.transformations
    ):
        return
    for branch in branches:
        key: Sequence[Any] = getattr(branch.sink, "conflict_key", ())
        names = [one if isinstance(one, str) else one.top for one in key]
        if missing := [name for name in names if name is not None and source.leaves_out(name)]:
            message = (
                f"names {', '.join(missing)}, which the source leaves out (includeColumns, "
                "excludeColumns): no record would have a key. Let the source read it, or choose "
                "another key"
            )
            yield document.finding((*branch.place, "conflictKey"), message)


def _no_columns(source: Source, sink: Sink) -> str:
    """Why `schemaChanges` of the source cannot be kept; empty where it can."""
    whole = sink.takes == "messages" or getattr(sink, "raw_mode", False)
    if source.traits.new_columns == "ignore" and whole:
        return (
            "stores whole records, so that no new column can be left out, as schemaChanges: ignore "
            "of the source says: name the columns to read there, as includeColumns"
        )
    if source.traits.new_columns != "add" or whole:
        return ""
    if not sink.adds_columns:
        able = ", ".join(sorted(name for name, one in registry.sinks().items() if one.adds_columns))
        return (
            f"a {sink.type} sink cannot add columns to its table, as schemaChanges: add of the "
            f"source says: leave schemaChanges out there, or use one of {able}"
        )
    if sink.unknown_fields == "ignore":
        return (
            "unknownFields: ignore leaves the columns out that schemaChanges: add of the source "
            "adds: leave one of the two out"
        )
    return ""


def _of_errors(
    document: Document, branches: Iterable[Branch], errors: Sink | None
) -> Iterator[Finding]:
    if errors is None:
        return
    if document.get("spec", "onRejected") is not None:
        message = "is for flows without errors, which says where rejected records go"
        yield document.finding(("spec", "onRejected"), message, key=True)
    if Branch(errors).id in {branch.id for branch in branches}:
        message = "is a table that the flow itself writes: rejected records need one of their own"
        yield document.finding((*ERRORS, "config"), message, key=True)


def _looping(
    document: Document, source: Source, branches: Iterable[Branch], errors: Sink | None
) -> Iterator[Finding]:
    """A flow that reads its own rows never comes to an end."""
    ends = [(branch.place, branch.sink) for branch in branches]
    ends += [((*ERRORS, "config"), errors)] if errors else []
    for place, sink in ends:
        if loops(source, sink, source.address(), sink.address()):
            message = f"the flow reads what it writes: {sink.address().name} is also its source"
            yield document.finding(place, message, key=True)
