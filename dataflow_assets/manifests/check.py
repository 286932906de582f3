"""Output of `dataflow check`: as lines for people, as JSON for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, Literal

from dataflow_assets.errors import Finding
from dataflow_assets.flow import Flow
from dataflow_assets.manifests.load import Loaded

Paint = Callable[[str, Literal["error", "note", "place", "good"]], str]
"""A piece of a line in the colour of its kind."""


def plain(text: str, _style: str) -> str:
    return text


def as_lines(loaded: Loaded, paint: Paint = plain) -> Iterator[str]:
    """Every finding, every note, then the count: `file:line:column: path: what is wrong`."""
    for finding in loaded.findings:
        place, message = paint(_place(finding), "place"), paint(finding.message, "error")
        yield f"{place}: {finding.path}: {message}"
    for hint in loaded.hints:
        place, word = paint(_place(hint), "place"), paint("note", "note")
        yield f"{place}: {word}: {hint.path}: {hint.message}"
    for flow in loaded.flows:
        yield f"{flow.file}:{flow.line}: flow {flow.id}: {_route(flow)}"
    yield paint(_count(loaded), "error" if loaded.findings else "note" if loaded.hints else "good")


def _place(finding: Finding) -> str:
    return f"{finding.file}:{finding.line}:{finding.column}"


def as_json(loaded: Loaded) -> dict[str, Any]:
    """These findings as plain data; no value of a manifest but names and addresses."""
    return {
        "flows": [_flow(flow) for flow in loaded.flows],
        "findings": [asdict(finding) for finding in loaded.findings],
        "hints": [asdict(hint) for hint in loaded.hints],
    }


def _route(flow: Flow) -> str:
    sinks = ", ".join(str(branch.address) for branch in flow.branches)
    return f"{flow.source_address} -> {sinks}{' (suspended)' if flow.suspended else ''}"


def _flow(flow: Flow) -> dict[str, Any]:
    return {
        "id": flow.id,
        "namespace": flow.namespace,
        "name": flow.name,
        "file": str(flow.file),
        "line": flow.line,
        "source": str(flow.source_address),
        "sinks": [str(branch.address) for branch in flow.branches],
        "suspended": flow.suspended,
        "hash": flow.hash,
    }


def _count(loaded: Loaded) -> str:
    counts = ((len(loaded.flows), "flow"), (len(loaded.findings), "finding"))
    words = [f"{n} {word}{'' if n == 1 else 's'}" for n, word in counts]
    return f"{', '.join(words)}, {len(loaded.hints)} note{'' if len(loaded.hints) == 1 else 's'}"
