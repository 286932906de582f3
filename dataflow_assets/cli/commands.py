"""The commands behind `dataflow`: each takes the parsed command line and hands back an exit code.

What is heavy (Spark, clients, servers) is imported by the command that needs it.
"""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dataflow_assets.cli import selection
from dataflow_assets.cli.console import err, out, paint, sentence, trace
from dataflow_assets.cli.logs import show_log
from dataflow_assets.contracts.declared import KeepsLog
from dataflow_assets.errors import PermanentError
from dataflow_assets.flow import Flow
from dataflow_assets.manifests import folders
from dataflow_assets.manifests.check import as_json, as_lines
from dataflow_assets.manifests.load import load
from dataflow_assets.manifests.stored_tables import compare

if TYPE_CHECKING:
    from dataflow_assets.assets.drive_states import DriveState
    from dataflow_assets.runs.request import Request

DAGSTER_SECONDS = 10.0  # in which the storages of Dagster usually answer


def check(asked: Namespace) -> int:
    """Prints what is wrong; 1 when anything is, or when there was nothing to check."""
    loaded = compare(load(asked.paths))
    unchecked = [say for path in asked.paths for say in folders.why_unchecked(path)]
    if not (unchecked or loaded.objects or loaded.findings):
        unchecked = ["no manifest in these files: nothing was checked"]
    for say in unchecked:
        err(say)
    if asked.json:
        out(json.dumps(as_json(loaded), indent=2))
    else:
        for line in as_lines(loaded, paint):
            out(line)
    notes = asked.strict and loaded.hints
    return 1 if loaded.findings or notes or unchecked else 0


def schema(_: Namespace) -> int:
    """Prints the JSON Schema of manifests, for editors."""
    from dataflow_assets.reference import json_schema

    sys.stdout.write(json_schema.render())
    return 0


def run(asked: Namespace) -> int:
    """Drains flows, or keeps them running; 1 when one failed or could not be understood."""
    from dataflow_assets.cli import running
    from dataflow_assets.cli.progress import display
    from dataflow_assets.spark.session import Spark, SparkSettings

    loaded = load(asked.paths)
    waits = asked.seconds is not None and asked.until is None
    flows = selection.to_run(loaded, asked.flow, waits=waits)
    spark, stop = Spark(SparkSettings.from_environment()), running.Stop(running.abandon)
    shown = display(asked.json, partial(sentence, flows=loaded.flows))
    outcomes: list[running.FlowOutcome] = []
    with show_log(shown.say, loaded.flows, asked.verbose), stop.listening():
        try:
            for event in running.run(flows, spark.session, _request(asked), stop):
                shown.show(event)
                outcomes += [event] if isinstance(event, running.FlowOutcome) else []
        finally:
            shown.close(outcomes)
            spark.close()
    failed = [outcome.error for outcome in outcomes if outcome.error is not None]
    for error in failed if asked.verbose else ():
        err(trace(error, loaded.flows))
    incomplete = not asked.flow and bool(loaded.findings)
    held = any(outcome.outcome == "stopped" for outcome in outcomes)
    return 1 if failed or incomplete else stop.code or int(held)


def status(asked: Namespace) -> int:
    """Prints where the flows stand; 1 when that could not be found out for one of them."""
    from dataflow_assets.cli import offsets_view, status_view
    from dataflow_assets.runs.statuses import statuses

    loaded = load(asked.paths)
    selection.say_findings(loaded)
    answers, driven = statuses(loaded.flows), _drive_states(loaded.flows)
    describe = partial(sentence, flows=loaded.flows)
    if asked.offsets and asked.json:
        out(json.dumps(offsets_view.as_json(answers, describe), indent=2))
    elif asked.offsets:
        offsets_view.show(answers, describe)
    elif asked.json:
        out(json.dumps(status_view.as_json(answers, describe, driven), indent=2))
    else:
        status_view.show(answers, describe, driven)
    return 1 if loaded.findings or any(answer.error for answer in answers) else 0


def reset(asked: Namespace) -> int:
    """Forgets the checkpoint of one flow, or takes another one over, once somebody has agreed."""
    loaded = load(asked.paths)
    (flow,) = selection.select(loaded, [asked.flow])
    if not asked.yes and not _confirm(flow, asked.checkpoint, asked.table):
        err("nothing was changed")
        return 1
    with show_log(err, [flow], verbose=False):
        for line in _reset(flow, asked):
            out(f"{flow.id}: {line}")
    return 0


def _reset(flow: Flow, asked: Namespace) -> Iterator[str]:
    from dataflow_assets.contracts import Run
    from dataflow_assets.runs import reset as resetting
    from dataflow_assets.runs import take_over

    run, file = Run(), asked.checkpoint
    if asked.table:
        tables = ", ".join(asked.table)
        for branch in resetting.load_again(flow, run, tuple(asked.table), confirmed=asked.yes):
            yield f"the next run loads {tables} again into {branch.address}"
    elif file is True:
        for branch in take_over.adopt_stored(flow, run):
            yield f"{branch.address} goes on where the program that filled its table stopped"
    elif file is not None:
        for branch in take_over.adopt_file(flow, run, _read(file)):
            yield f"{branch.address} goes on from {file}"
    else:
        for branch in resetting.reset(flow, run):
            yield f"the checkpoint of {branch.address} is forgotten; its rows stay"
        source = flow.resolve().source
        if isinstance(source, KeepsLog) and (left := source.left_behind()):
            yield left


def servers(asked: Namespace) -> int:
    """Starts or stops the servers of one folder."""
    _need_clone()
    import devservers

    if asked.action == "down":
        devservers.down(asked.folder, progress=out)
        return 0
    devservers.up(asked.folder, spark=not asked.no_spark, progress=out)
    out(f"addresses are in {asked.folder / devservers.FILE}")
    return 0


def demo(asked: Namespace) -> int:
    _need_clone()
    from devservers.demo.running import run as run_demo

    return run_demo(asked.which, asked.folder)


def _need_clone() -> None:
    """Local servers are no part of what is installed."""
    if find_spec("devservers") is None:
        raise PermanentError(
            "local servers and demos are in a clone of the repository only: run `make demo` or "
            "`make servers-up` there"
        )


def _request(asked: Namespace) -> Request:
    from dataflow_assets.runs.request import Request, Start

    table, confirmed = asked.table, asked.yes
    if "=" in asked.start:
        pairs = (part.split("=") for part in asked.start.split(","))
        offsets = {partition: int(offset) for partition, offset in pairs}
        start = Start("offsets", offsets=offsets, table=table, confirmed=confirmed)
    elif asked.start[0].isdigit():
        start = Start("timestamp", asked.start, table=table, confirmed=confirmed)
    else:
        start = Start(asked.start, table=table, confirmed=confirmed)
    return Request(seconds=asked.seconds, until=asked.until, start=start)


def _drive_states(flows: Sequence[Flow]) -> Mapping[str, DriveState]:
    if not os.environ.get("DAGSTER_HOME"):
        return {}
    from dataflow_assets.assets.drive_states import drive_states
    from dataflow_assets.runs.questions import ask_within

    try:
        return ask_within(partial(drive_states, flows), DAGSTER_SECONDS)
    except Exception as error:  # noqa: BLE001 - storages raise many kinds; the rest can be said
        err(f"DAGSTER_HOME cannot be read, lanes are not shown: {sentence(error, flows)}")
        return {}


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise PermanentError(f"{file} cannot be read: {reason}") from None


def _confirm(flow: Flow, checkpoint: Path | Literal[True] | None, tables: Sequence[str]) -> bool:
    """Asks on the terminal; without one nobody can agree."""
    if not sys.stdin.isatty():
        raise PermanentError(f"reset of {flow.id}: no terminal to confirm; pass --yes to go on")
    sinks = ", ".join(str(branch.address) for branch in flow.branches)
    stopped = "where the program that filled its table stopped"
    start = stopped if checkpoint is True else checkpoint or "the manifest's start"
    question = (
        f"Forget how far {flow.id} has come? The rows in {sinks} stay; the next run reads "
        f"{flow.source_address} from {start}. [y/N] "
    )
    if tables:
        question = (
            f"Load the rows of {', '.join(tables)} again? The rows in {sinks} stay, also those "
            "that were deleted at the source without a change in its log. [y/N] "
        )
    sys.stderr.write(question)
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
