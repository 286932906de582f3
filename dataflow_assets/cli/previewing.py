"""`dataflow preview`: records before and after every step, for people or as JSON."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

from dataflow_assets.cli import selection
from dataflow_assets.cli.console import err, out, sentence
from dataflow_assets.cli.preview.lines import Line, as_lines
from dataflow_assets.cli.preview.live import WaitingMessages, waiting
from dataflow_assets.cli.preview.messages import Message, as_json, read
from dataflow_assets.cli.preview.trace import Tracer
from dataflow_assets.contracts import local_now
from dataflow_assets.errors import DataflowError, PermanentError
from dataflow_assets.flow import Flow
from dataflow_assets.manifests.load import load
from dataflow_assets.runs.redaction import mask
from dataflow_assets.testing import Result, choose

LIVE = 10  # records, unless --limit says otherwise
STYLES = {
    "title": "bold",
    "same": "dim",
    "removed": "red",
    "added": "green",
    "step": "bold cyan",
    "quiet": "yellow",
    "bad": "bold red",
    "sink": "bold green",
}


def preview(asked: Namespace) -> int:
    """Shows what becomes of each record; 1 when a manifest or the file cannot be understood."""
    flow = _flow(asked)
    if not flow.transformations:
        err(f"{flow.id}: the flow has no steps: records reach the sink as they are shown")
    tracer, print_line = Tracer(flow, local_now()), _printer()
    counts = dict.fromkeys(("passed on", "filtered", "rejected"), 0)
    for number, message in enumerate(_messages(asked, flow), 1):
        trace = tracer.trace(message.raw, message.metadata, message.unreadable)
        counts[_fate(trace.result)] += 1
        if asked.json:
            out(as_json(message, trace.result))
            continue
        for line in as_lines(flow, number, message, trace):
            print_line(line)
    counted = ", ".join(f"{count} {fate}" for fate, count in counts.items())
    total = sum(counts.values())
    several = f"{total} record{'' if total == 1 else 's'}"
    err(f"{flow.id}: {several}: {counted}; nothing was stored or moved")
    return 0


def _flow(asked: Namespace) -> Flow:
    loaded = load(asked.paths)
    if asked.flow is None:
        return choose(loaded, None)
    (flow,) = selection.select(loaded, [asked.flow])
    selection.say_findings(loaded)
    return flow


def _messages(asked: Namespace, flow: Flow) -> Iterable[Message]:
    if asked.input is not None:
        return islice(_read(asked.input), asked.limit)
    messages = _peek(flow, asked.limit or LIVE)
    err(mask(f"{flow.id}: {messages.which}", [flow]))
    return messages.messages


def _peek(flow: Flow, limit: int) -> WaitingMessages:
    try:
        return waiting(flow, limit)
    except DataflowError as error:
        raise PermanentError(sentence(error, [flow])) from error


def _read(file: str) -> Iterator[Message]:
    if file == "-":
        yield from read(sys.stdin.buffer, "standard input")
        return
    try:
        with Path(file).open("rb") as lines:
            yield from read(lines, file)
    except OSError as error:
        raise PermanentError(f"{file}: cannot be read: {error.strerror}") from None


def _fate(result: Result) -> str:
    return "rejected" if result.rejected else "passed on" if result.out else "filtered"


def _printer() -> Callable[[Line], None]:
    if not sys.stdout.isatty():
        return lambda line: out(line.text)
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    return lambda line: console.print(Text(line.text, STYLES[line.kind]))
