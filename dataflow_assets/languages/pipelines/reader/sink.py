"""A table of a pipeline as the sink of a flow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dataflow_assets import registry
from dataflow_assets.contracts import Sink
from dataflow_assets.errors import DataflowError
from dataflow_assets.languages.common.documents import Document, NodePlace, Path
from dataflow_assets.languages.common.notes import Notes
from dataflow_assets.languages.common.wording import validate
from dataflow_assets.languages.pipelines.clickhouse.sink import PipelineClickhouseSink
from dataflow_assets.languages.pipelines.iceberg.sink import PipelineIcebergSink
from dataflow_assets.languages.pipelines.postgresql.sink import PipelinePostgresqlSink
from dataflow_assets.languages.pipelines.rows.table import PipelineTable
from dataflow_assets.languages.pipelines.targets import PipelineTarget

_SINKS: Mapping[str, type[Sink]] = {
    "postgresql": PipelinePostgresqlSink,
    "clickhouse": PipelineClickhouseSink,
    "iceberg": PipelineIcebergSink,
}
FOLDS = frozenset({"postgresql"})
"""Targets that read names without quotes in small letters."""
COMPUTES = frozenset({"postgresql", "clickhouse"})
"""Targets that compute columns themselves."""
MONITORS = frozenset({"postgresql", "clickhouse"})
"""Targets with views of what pipelines do."""
_OWN = ("upsertMode", "rawMode", "autoCreateTable", "columns", "deleteMode", "engine")


def sink(
    target: PipelineTarget,
    name: str,
    table: PipelineTable,
    description: Mapping[str, str],
    notes: Notes,
) -> Sink | None:
    """The sink; None where `notes` has got the reason.

    `told`: what views beside the table say of its pipeline.
    """
    document = _document(target, name)
    before = len(notes.findings)
    config = document.get(*target.base) or {}
    for key in config:
        if key in _OWN:
            message = "must be left out: the file says what its tables are like"
            notes.findings.append(document.finding((*target.base, key), message, key=True))
    found, findings = validate(registry.sinks()[target.system], document, target.base)
    notes.findings += findings
    if found is None or len(notes.findings) > before:
        return None
    fields = {key: getattr(found, key) for key in found.model_fields_set}
    own: Mapping[str, Any] = description if target.system in MONITORS else {}
    if target.system == "iceberg":
        own = {"auto_create_table": True}
    if table.key:
        own = {**own, "upsert_mode": True, "conflict_key": table.key}
    built = _SINKS[target.system](**{**fields, **own, "definition": table})
    try:
        built.address()
    except (DataflowError, ValueError, LookupError) as error:
        message = f"does not say where it points: {error}"
        notes.findings.append(document.finding(target.base, message))
        return None
    return built


def _document(target: PipelineTarget, name: str) -> Document:
    """With the table in the sink's options."""
    value = _with_table(target.document.value, target.base, _table(target, name))
    places: dict[Path, NodePlace] = dict(target.document.places)
    return Document(target.document.file, value, places)


def _table(target: PipelineTarget, name: str) -> str:
    mark = "`" if target.system == "clickhouse" else '"'
    if target.system == "iceberg":
        return name
    quoted = f"{mark}{name.replace(mark, mark * 2)}{mark}" if "." in name else name
    return f"{target.schema}.{quoted}" if target.schema else quoted


def _with_table(value: Any, base: Path, table: str) -> Any:
    if not base:
        return {**(value or {}), "table": table}
    first, *rest = base
    inner = value.get(first) if isinstance(value, dict) else None
    return {**(value or {}), first: _with_table(inner, tuple(rest), table)}
