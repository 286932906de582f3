"""The DataFlow Operator's manifests: one document -> one flow, with everything that is wrong in it.

`DataFlow` is understood; `DataFlowCron` is known and refused. The stale group `dataflow.oss.io` is
accepted with a hint.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path as File
from typing import Any

from dataflow_assets import registry
from dataflow_assets.contracts import Connector, Limit, Rejects, Sink, Source
from dataflow_assets.contracts.declared import AdaptsToBranches
from dataflow_assets.errors import Finding
from dataflow_assets.flow import Branch, Flow, Policies
from dataflow_assets.languages.common.documents import Document, Path
from dataflow_assets.languages.common.keys import names, suggest
from dataflow_assets.languages.common.reading import Reading
from dataflow_assets.languages.common.wording import validate
from dataflow_assets.languages.dataflow import model
from dataflow_assets.languages.dataflow import steps as dataflow_steps
from dataflow_assets.languages.dataflow.ends import end
from dataflow_assets.languages.dataflow.notes import of_ends, of_errors
from dataflow_assets.languages.dataflow.rules import ERRORS, of_flow
from dataflow_assets.spec import Spec, hints

KINDS = ("DataFlow", "DataFlowCron")
_CRON = (
    "not supported yet: DataFlowCron; a DataFlow keeps its table up to date by itself, and its job "
    "can be put on a schedule"
)
_USUAL = {"apiVersion": f": write {model.API_VERSION}", "kind": ": DataFlow"}
"""What a key that every manifest has says in nearly all of them."""
_OF_LANES: tuple[Path, ...] = (("spec", "freshness"), ("metadata", "annotations", model.LANE))
_NO_LANE = (
    "has no effect: each run reads all rows of its source, so the flow has runs of its own and no "
    "lane; without snapshotMode: always, or with changeTrackingColumn, a lane drives it"
)
_VARIABLE = re.compile(r"\$\{(env:)?\w+\}")
_NO_VARIABLES = (
    "is read as it is written: environment variables are not expanded here; a value that differs "
    "by environment is a SecretRef"
)
_SOURCE: Path = ("spec", "source")
_SINK: Path = ("spec", "sink")


def reads(document: Document) -> bool:
    """Returns whether the document is this language's: by its kind or by its group."""
    group = str(document.get("apiVersion")).partition("/")[0]
    kind = str(document.get("kind")).casefold()
    return kind in {one.casefold() for one in KINDS} or group in {model.GROUP, model.STALE_GROUP}


def read(document: Document) -> Reading:
    """The document's flow, or everything that is wrong with it."""
    findings = list(_header(document))
    if document.get("kind") not in ("DataFlow", None):
        return Reading(document, tuple(findings))
    envelope, more = validate(model.Manifest, document)
    findings += [_explain(finding) for finding in more]
    source, source_findings = end(document, _SOURCE, registry.sources())
    sink, sink_findings = end(document, _SINK, registry.sinks())
    main = None
    if sink is not None and not sink_findings:
        value = document.get("metadata", "annotations", model.SINK_CONNECTION)
        main = Branch(sink, value if isinstance(value, str) else None)
    steps = dataflow_steps.read(document, main)
    errors, error_findings = end(document, ERRORS, registry.sinks())
    findings += [_explain(finding) for finding in (*source_findings, *sink_findings)]
    findings += [*steps.findings, *error_findings]
    if envelope is None or source is None or main is None:
        return Reading(document, tuple(findings))
    if isinstance(source, AdaptsToBranches):
        upserts = any(one.sink.traits.upserts for one in steps.branches)
        source = source.for_branches(upserts=upserts)
    findings += of_flow(document, envelope, source, steps.branches, errors)
    notes = _hints(document, envelope, source, steps, errors)
    if findings or not document.sound:
        return Reading(document, tuple(findings), notes)
    return Reading(document, (), notes, _flow(document, envelope, source, steps, errors))


def _header(document: Document) -> Iterable[Finding]:
    version, kind = document.get("apiVersion"), document.get("kind")
    if kind == "DataFlowCron":
        yield document.finding(("kind",), _CRON)
    elif kind not in ("DataFlow", None):
        yield document.finding(("kind",), f"unknown kind; {suggest(str(kind), KINDS)}")
    if isinstance(version, str) and version not in {model.API_VERSION, f"{model.STALE_GROUP}/v1"}:
        message = f"is not one of the allowed values: {model.API_VERSION}"
        yield document.finding(("apiVersion",), message)


def _explain(finding: Finding) -> Finding:
    """Says where a key belongs: of a connector beside `type`, of the flow inside of an end."""
    if finding.message.startswith("is required") and finding.path in _USUAL:
        return replace(finding, message=finding.message + _USUAL[finding.path])
    if finding.path.startswith("x-"):  # as Compose files have them
        return replace(finding, message="unknown key: define an anchor where it is first used")
    _, _, place = finding.path.partition("spec.")
    end, _, key = place.partition(".")
    if end.startswith("transformations[") and finding.message.startswith("unknown key"):
        return _explained_step(finding, key)
    ends: dict[str, Mapping[str, type[Any]]]
    ends = {"source": registry.sources(), "sink": registry.sinks()}
    if end not in ends or not finding.message.startswith("unknown key"):
        return finding
    reason = ends[end]
    if key in reason:
        advice = "the connector's name goes into type, its settings into config"
    elif any(key in (info.alias, name) for cls in reason.values() for name, info in _fields(cls)):
        advice = f"did you mean config.{key}?"
    elif (last := key.removeprefix("config.")) in names(model.DataFlowSpec):
        advice = f"{last} is a key of spec: indent it as {end} is"
    else:
        return finding
    return replace(finding, message=f"unknown key; {advice}")


def _explained_step(finding: Finding, key: str) -> Finding:
    """Says how a step is written whose name, or whose setting, stands beside `type`."""
    steps = registry.steps()
    if key in steps:
        advice = f"write `type: {key}`, and its settings under `config`"
    elif any(key in (info.alias, name) for step in steps.values() for name, info in _fields(step)):
        advice = f"did you mean config.{key}?"
    else:
        return finding
    return replace(finding, message=f"unknown key; {advice}")


def _fields(cls: type[Spec]) -> Iterable[tuple[str, Any]]:
    return cls.model_fields.items()


def _hints(
    document: Document,
    manifest: model.Manifest,
    source: Source,
    steps: dataflow_steps.DataflowSteps,
    errors: Sink | None,
) -> tuple[Finding, ...]:
    parts: list[tuple[Path, Spec]] = [
        ((), manifest),
        ((*_SOURCE, "config"), source),
        *((branch.place, branch.sink) for branch in steps.branches),
        *((place, one.step) for place, one in steps.with_places()),
        *([((*ERRORS, "config"), errors)] if errors else []),
    ]
    notes = [
        document.finding((*base, *_split(path)), instead, key=True)
        for base, spec in parts
        for path, instead in hints(spec)
    ]
    notes += [
        document.finding((*place[:-1], "when"), remark)
        for place, one in steps.with_places()
        for remark in (one.when.remarks() if one.when else ())
    ]
    notes += _variables(document)
    notes += [*of_ends(document, manifest, source, steps), *of_errors(document, errors)]
    if manifest.api_version == f"{model.STALE_GROUP}/v1":
        notes.append(document.finding(("apiVersion",), f"an old name of {model.API_VERSION}"))
    if not source.traits.incremental:
        unused = [path for path in _OF_LANES if document.get(*path) is not None]
        notes += [document.finding(path, _NO_LANE, key=True) for path in unused]
    return tuple(notes)


def _variables(document: Document) -> Iterable[Finding]:
    for place in (_SOURCE, _SINK, ERRORS):
        config = document.get(*place, "config")
        for key, value in config.items() if isinstance(config, dict) else ():
            if isinstance(value, str) and _VARIABLE.search(value):
                yield document.finding((*place, "config", key), _NO_VARIABLES)


def _split(path: str) -> Path:
    parts = path.replace("[", ".[").split(".")
    return tuple(int(p[1:-1]) if p.startswith("[") else p for p in parts)


def _flow(
    document: Document,
    manifest: model.Manifest,
    source: Source,
    steps: dataflow_steps.DataflowSteps,
    errors: Sink | None,
) -> Flow:
    meta, spec = manifest.metadata, manifest.spec
    reset = spec.checkpoint_reset or meta.annotations.get(model.RESET) == "true"
    return Flow(
        namespace=meta.namespace,
        name=meta.name,
        source=source,
        branches=steps.branches,
        policies=_policies(spec, source, reset, errors),
        transformations=steps.transformations,
        file=File(document.file),
        line=document.places[()].line,
        hash=_hash(document.get("spec"), reset),
        suspended=spec.is_suspended,
        maintenance=spec.maintenance.window,
        source_connection=meta.annotations.get(model.SOURCE_CONNECTION),
        labels=meta.labels,
        annotations=meta.annotations,
    )


def _policies(
    spec: model.DataFlowSpec, source: Connector, reset: bool, errors: Sink | None
) -> Policies:
    return Policies(
        limit=Limit(spec.max_records_per_batch, spec.max_bytes_per_batch),
        freshness_seconds=spec.freshness,
        max_rejected_percent=spec.max_rejected_percent,
        on_topic_recreated=getattr(source, "on_topic_recreated", "fail"),
        checkpoint_reset=reset,
        rejects=_rejects(spec, errors),
    )


def _rejects(spec: model.DataFlowSpec, errors: Sink | None) -> Rejects:
    if spec.errors is None or errors is None:
        return Rejects(spec.on_rejected or "fail")
    return Rejects("errors", errors, holds=spec.errors.ack_policy != "afterWrite")


def _hash(spec: dict[str, Any], reset: bool) -> str:
    content = spec | {"checkpointReset": True} if reset else spec
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
