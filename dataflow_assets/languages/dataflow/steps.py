"""The `transformations` of a DataFlow: steps, their conditions, and the branches of its routers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dataflow_assets import registry
from dataflow_assets.errors import Finding
from dataflow_assets.errors.likely_names import did_you_mean_or
from dataflow_assets.flow import Branch
from dataflow_assets.languages.common.documents import Document, Path
from dataflow_assets.languages.common.wording import validate
from dataflow_assets.languages.dataflow.ends import end
from dataflow_assets.records.chain import Transformation
from dataflow_assets.records.conditions.condition import Condition
from dataflow_assets.records.step import Step
from dataflow_assets.transforms.router import Router

_LIST: Path = ("spec", "transformations")
_ELSEWHERE = {
    "rename": "replaceField (it renames fields)",
    "drop": "remove (fields) or filter (records)",
    "delete": "remove (fields) or filter (records)",
    "map": "replaceField or select",
    "convert": "cast",
    "route": "router",
    "split": "flatten or router",
    "deduplicate": "dedupe",
    "unwrap": "debeziumUnwrap",
    "timestampconverter": "timezone (it converts times)",
    "timestampconvert": "timezone (it converts times)",
    "insert": "insertField",
    "addfield": "insertField",
    "addfields": "insertField",
    "parsejson": "jsonParse",
    "fromjson": "jsonParse",
    "tojson": "jsonString",
    "extract": "extractField",
    "redact": "mask",
    "project": "select",
    "where": "filter",
}
"""What other tools call a step, and the steps that do it here."""


@dataclass(frozen=True)
class DataflowSteps:
    """The steps of the list, with their conditions and routes."""

    transformations: tuple[Transformation, ...]
    branches: tuple[Branch, ...]
    findings: tuple[Finding, ...]

    def with_places(self) -> list[tuple[Path, Transformation]]:
        """Each step with the place of its settings; none where a step has findings."""
        steps = () if self.findings else self.transformations
        return [((*_LIST, number, "config"), step) for number, step in enumerate(steps)]


def read(document: Document, main: Branch | None) -> DataflowSteps:
    """The steps, and the main branch with those of the routers; or what is wrong with them."""
    entries = document.get(*_LIST)
    count = len(entries) if isinstance(entries, list) else 0
    listed = [_DataflowEntry(document, (*_LIST, index)) for index in range(count)]
    transformations = tuple(entry.transformation for entry in listed if entry.transformation)
    findings = [finding for entry in listed for finding in entry.findings]
    routed = [route for entry in listed for route in entry.branches]
    branches, more = _merge(document, main, routed)
    return DataflowSteps(transformations, branches, (*findings, *more))


class _DataflowEntry:
    """One entry of the list."""

    def __init__(self, document: Document, path: Path) -> None:
        self._document, self._path = document, path
        self.findings: list[Finding] = []
        self.branches: list[Branch] = []
        self.transformation: Transformation | None = None
        step, when = self._step(), self._when()
        if isinstance(step, Router):
            self.branches = list(self._routes(step))
        if step is not None and not self.findings:
            self.transformation = Transformation(step, when)

    def _step(self) -> Step | None:
        name = self._document.get(*self._path, "type")
        steps = registry.steps()
        if not isinstance(name, str):
            return None  # a finding of the envelope already
        if name not in steps:
            message = f"unknown step; {_suggest(name, tuple(steps))}"
            self._complain(("type",), message)
            return None
        step, findings = validate(steps[name], self._document, (*self._path, "config"))
        self.findings += [*findings, *self._empty()]
        return step

    def _empty(self) -> Iterator[Finding]:
        """`cast` to null is written "null", in quotes: YAML's own null counts as absent."""
        depth = len(self._path) + 2
        for path in self._document.empty:
            if path[: len(self._path)] == self._path and len(path) > depth:
                yield self._document.finding(path, "has no value; text goes into quotes", key=True)

    def _when(self) -> Condition | None:
        text = self._document.get(*self._path, "when")
        if not isinstance(text, str) or not text.strip():
            return None
        try:
            return Condition.parse(text)
        except ValueError as error:
            self._complain(("when",), str(error))
            return None

    def _routes(self, router: Router) -> Iterator[Branch]:
        for index, route in enumerate(router.routes):
            path = (*self._path, "config", "routes", index, "sink")
            sink, findings = end(self._document, path, registry.sinks())
            self.findings += findings
            if sink is not None and not findings:
                yield Branch(sink, routes=(route.condition.text,), place=(*path, "config"))

    def _complain(self, path: Path, message: str) -> None:
        self.findings.append(self._document.finding((*self._path, *path), message))


def _suggest(name: str, steps: tuple[str, ...]) -> str:
    """The step that does what this name says; a name that is merely alike may do the opposite."""
    if elsewhere := _ELSEWHERE.get(name.casefold()):
        return f"did you mean {elsewhere}?"
    return did_you_mean_or(name, steps, f"allowed: {', '.join(steps)}")


def _merge(
    document: Document, main: Branch | None, routed: list[Branch]
) -> tuple[tuple[Branch, ...], list[Finding]]:
    """One branch for each target, whatever leads there; and one target for each condition."""
    branches = {main.id: main} if main else {}
    leads: dict[str | None, str] = {}
    findings = []
    for branch in routed:
        first = branches.setdefault(branch.id, branch)
        (route,) = branch.routes
        if first.sink != branch.sink:
            message = "another sink of this flow has the same target and other settings"
            findings.append(document.finding(branch.place, message, key=True))
        elif leads.setdefault(route, branch.id) != branch.id:
            message = "an earlier route has this condition and another sink: change one of the two"
            findings.append(document.finding((*branch.place[:-2], "condition"), message))
        branches[branch.id] = first.with_route(route)
    return tuple(branches.values()), findings
