"""Notes about ends of a DataFlow manifest that do not fit each other: what a run would meet."""

from __future__ import annotations

from collections.abc import Iterator

from dataflow_assets.contracts import Sink, Source
from dataflow_assets.contracts.declared import ChoosesColumns
from dataflow_assets.errors import Finding
from dataflow_assets.languages.common.documents import Document, Path
from dataflow_assets.languages.dataflow import model
from dataflow_assets.languages.dataflow.rules import ERRORS, KEEPING
from dataflow_assets.languages.dataflow.steps import DataflowSteps
from dataflow_assets.records.chain import Transformation
from dataflow_assets.records.conditions.condition import Condition
from dataflow_assets.sdk.raw_mode import RawSink

_SNAPSHOTS = ("iceberg", "nessie")
_TELLING = ("debeziumUnwrap",)  # steps that add metadata


def of_ends(
    document: Document, manifest: model.Manifest, source: Source, steps: DataflowSteps
) -> Iterator[Finding]:
    """Each note stands at the sink that it is about.

    Args:
        document: the manifest.
        manifest: what it says outside of source, steps and sinks.
        source: of the flow.
        steps: with the branches of the flow.
    """
    makers = (one.step.type for one in steps.transformations if one.step.makes_deletes)
    sent = source.traits.sends_deletes or next(makers, "")
    for branch in steps.branches:
        if sent and not branch.sink.traits.takes_deletes:
            message = f"takes no deletes, and {sent} sends them: {_on_rejected(manifest.spec)}. "
            yield document.finding(branch.place, message + _advice(branch.sink), key=True)
        if missing := _no_metadata(source, steps, branch.sink):
            message = _UNKEYED.format(", ".join(missing), ", ".join(_metadata_names(source)))
            yield document.finding((*branch.place, "conflictKey"), message, key=True)
        if branch.sink.traits.upserts and source.type in _SNAPSHOTS and not source.traits.rereads:
            yield document.finding(branch.place, _ONCE, key=True)
    yield from _condition_notes(document, source, steps)
    annotations = manifest.metadata.annotations
    if manifest.spec.checkpoint_reset or annotations.get(model.RESET) == "true":
        by_key: Path = ("metadata", "annotations", model.RESET)
        path = ("spec", "checkpointReset") if manifest.spec.checkpoint_reset else by_key
        yield document.finding(path, _RESET, key=True)


_RESET = (
    "resets once, with the next run; remove it after that: each later change of the spec would "
    "reset again"
)


def of_errors(document: Document, errors: Sink | None) -> Iterator[Finding]:
    """A note at each option of the error sink that has no effect for rejected records."""
    fields = type(errors).model_fields if errors else {}
    for name in sorted(UNUSED & set(errors.model_fields_set if errors else ())):
        path = (*ERRORS, "config", fields[name].alias or name)
        yield document.finding(path, _APPENDED, key=True)


UNUSED = frozenset(
    {"upsert_mode", "conflict_key", "delete_mode", "soft_delete_column", "unknown_fields"}
    | {"upsert_strategy", "upsert_version_column", "replacing_version_column", "checkpoint_table"}
    | {"flatten_metadata_columns", "flatten_metadata_columns_prefix", "order_by", "sort_by"}
    | {"partition_by", "table_engine", "batch_flush_interval_seconds", "maintenance"}
    | {"key_field", "key_template", "topic_field"}
)
"""Fields of sinks that no error sink reads."""
_APPENDED = "has no effect in an error sink: each rejected record is added as it is, by its own id"
_ONCE = (
    "the source reads its table once, and then what is appended to it; where rows are changed or "
    "removed there the flow stops. Set onSourceRewrite: rescan in the source to read it again then"
)


_UNKEYED = (
    "with rawMode rows are matched by metadata, and {} is none that this source gives (it gives "
    "{}): a record has it only in a body with a field _metadata, and every other one is rejected. "
    "Name metadata of the source, or leave rawMode out to match rows by fields of the body"
)


def _no_metadata(source: Source, steps: DataflowSteps, sink: Sink) -> list[str]:
    if not isinstance(sink, RawSink) or any(
        one.step.type in _TELLING for one in steps.transformations
    ):
        return []
    prefix = sink.flatten_metadata_columns_prefix
    names = (name.removeprefix(prefix) for name in sink.raw_key)
    return [name for name in names if name not in _metadata_names(source)]


def _metadata_names(source: Source) -> list[str]:
    absent = source.traits.absent_metadata
    return [name for name in source.metadata_keys if name not in absent]


def _condition_notes(document: Document, source: Source, steps: DataflowSteps) -> Iterator[Finding]:
    """Conditions about what no record has, as far as no step has changed the records before."""
    fields = {*_metadata_names(source), *(("operation",) if source.traits.sends_deletes else ())}
    listed = ", ".join(_metadata_names(source)) or "none"
    for place, one in steps.with_places():
        for condition in _conditions(one):
            for name in sorted(condition.reads()):
                if name.partition(".")[0] not in fields:
                    message = f"asks for metadata {name}, which no record of this source has"
                    yield document.finding(place, f"{message} (it has {listed})", key=True)
            for name in sorted(condition.fields()):
                if isinstance(source, ChoosesColumns) and source.leaves_out(name):
                    yield document.finding(place, _LEFT_OUT.format(name), key=True)
        if one.step.type not in KEEPING:
            return


_LEFT_OUT = "asks for {}, which the source leaves out (includeColumns, excludeColumns)"


def _conditions(one: Transformation) -> Iterator[Condition]:
    step = one.step
    texts = [one.when, getattr(step, "condition", None)]
    texts += [route.condition for route in getattr(step, "routes", ())]
    yield from (found for found in texts if isinstance(found, Condition))


def _on_rejected(spec: model.DataFlowSpec) -> str:
    way = "errors" if spec.errors else spec.on_rejected or "fail"
    if way == "fail":
        return "the flow stops at the first one"
    return f"each is a rejected record, and the flow stops above {spec.max_rejected_percent:g} %"


def _advice(sink: Sink) -> str:
    if sink.traits.upserts:
        other = ", or name a softDeleteColumn" if hasattr(sink, "soft_delete_column") else ""
        return f"Set deleteMode: hard to remove the row of the key{other}"
    return (
        "Set upsertMode and a way to delete, or rawMode: true to keep each change as a row, or "
        "leave deletes out with a step"
    )
