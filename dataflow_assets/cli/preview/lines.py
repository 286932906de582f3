"""A trace for people: each step's record before and after as a difference, a line at a time."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from dataflow_assets.cli.preview.messages import Message, body_key, plain
from dataflow_assets.cli.preview.trace import Trace, Visit
from dataflow_assets.flow import Flow
from dataflow_assets.records.record import Record, encode
from dataflow_assets.testing import Result

Kind = Literal["title", "same", "removed", "added", "step", "quiet", "bad", "sink"]
CONTEXT = 1  # unchanged lines around a change
_KINDS: dict[str, Kind] = {"-": "removed", "+": "added", " ": "same"}


@dataclass(frozen=True)
class Line:
    """One line of the display; `kind` chooses its colour."""

    text: str
    kind: Kind

    def indent(self) -> Line:
        """The line as one of a record that a step has made."""
        return replace(self, text=f"    {self.text}")


def as_lines(flow: Flow, number: int, message: Message, trace: Trace) -> Iterator[Line]:
    """The message, its way through the steps, and where it ends up."""
    metadata = encode(plain(message.metadata)).decode() if message.metadata else ""
    yield Line(f"record {number}  {metadata}".rstrip(), "title")
    visits = list(trace.visits)
    passed = [Record(one.body, {}) for one in trace.result.out]  # of a flow without steps
    first = visits[0].before if visits else next(iter(passed), None)
    if first is None:
        yield Line(f"    {message.line.decode()}", "same")
    else:
        yield from (Line(f"    {text}", "same") for text in _body(first.body))
    yield from _Way(flow, visits, trace.result).lines()


class _Way:
    """Goes over the visits as the chain did: the whole way of one child before that of the next."""

    def __init__(self, flow: Flow, visits: Sequence[Visit], result: Result) -> None:
        self._types = [one.step.type for one in flow.transformations]
        self._whens = [one.when.text if one.when else "" for one in flow.transformations]
        self._sinks = {route: one for one in flow.branches for route in one.routes}
        self._visits = iter(visits)
        self._out = iter(result.out)
        self._rejected = result.rejected
        self._ended = False
        self._unchanged: list[int] = []

    def lines(self) -> Iterator[Line]:
        yield from self._from(0)
        if self._rejected and not self._ended:
            yield Line(f"{self._rejected.type}: rejected: {self._rejected.reason}", "bad")

    def _from(self, step: int) -> Iterator[Line]:
        while step < len(self._types):
            visit = next(self._visits, None)
            if visit is None:  # an earlier child was rejected, or the body was never read
                return
            one = visit.reason is None and len(visit.after) == 1
            if one and _show(visit.before) == _show(visit.after[0]):
                yield from self._same(visit)
            else:
                yield from self._flush()
                yield from self._change(visit)
                if len(visit.after) != 1:
                    return
            step += 1
        yield from self._flush()
        trace = next(self._out, None)
        if trace is None:
            return
        route = f"  ({trace.route})" if trace.route else ""
        yield Line(f"-> {self._sinks[trace.route].address}{route}", "sink")

    def _same(self, visit: Visit) -> Iterator[Line]:
        if visit.skipped:
            yield from self._flush()
            when = f"skipped, as {self._whens[visit.step]} does not hold"
            yield Line(f"{self._name(visit.step)}: {when}", "quiet")
        else:
            self._unchanged.append(visit.step)

    def _flush(self) -> Iterator[Line]:
        """Neighbours that change nothing, on one line."""
        names = ", ".join(map(self._name, self._unchanged))
        self._unchanged.clear()
        if names:
            yield Line(f"{names}: unchanged", "quiet")

    def _change(self, visit: Visit) -> Iterator[Line]:
        name = self._name(visit.step)
        if visit.reason is not None:
            self._ended = True
            yield Line(f"{name}: rejected: {visit.reason}", "bad")
        elif not visit.after:
            yield Line(f"{name}: filtered", "quiet")
        elif len(visit.after) == 1:
            yield Line(name, "step")
            yield from _difference(visit.before, visit.after[0])
        else:
            yield Line(f"{name}: {len(visit.after)} records", "step")
            for number, child in enumerate(visit.after, 1):
                yield from self._child(visit, number, child)

    def _child(self, visit: Visit, number: int, child: Record) -> Iterator[Line]:
        if self._ended:
            return
        yield Line(f"    record {number} of {len(visit.after)}", "title")
        yield from (line.indent() for line in _difference(visit.before, child))
        yield from (line.indent() for line in self._from(visit.step + 1))

    def _name(self, step: int) -> str:
        return f"[{step}] {self._types[step]}"


def _difference(before: Record, after: Record) -> Iterator[Line]:
    diff = difflib.unified_diff(_show(before), _show(after), lineterm="", n=CONTEXT)
    _names, _of_files, _first_place, *texts = diff
    for text in texts:
        if text.startswith("@@"):
            yield Line("    ...", "same")
        else:
            yield Line(f"  {text[0]} {text[1:]}", _KINDS[text[0]])


def _show(record: Record) -> list[str]:
    """Body and metadata, a line for each value; without the commas, which would differ too."""
    metadata = (f"metadata.{key}: {_text(value)}" for key, value in plain(record.metadata).items())
    return [*_body(record.body), *metadata]


def _body(body: Any) -> list[str]:
    ((kind, value),) = body_key(body).items()
    if kind != "body":
        return [f"{kind}: {_text(value)}"]
    pretty = msgspec.json.format(encode(value), indent=2).decode()
    return [line.removesuffix(",") for line in pretty.split("\n")]


def _text(value: Any) -> str:
    return encode(value).decode()
