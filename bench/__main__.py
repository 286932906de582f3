"""`python -m bench`: measures flows beside their bounds on servers of its own."""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import (
    age,
    backlog,
    changes,
    connect,
    coordinator,
    justone,
    log_memory,
    messages,
    places,
    report,
    steps,
    streaming_sql,
    tiny,
)
from bench.fleet.drives import DRIVES
from bench.fleet.measure import CASES
from bench.fleet.measure import run as run_fleet
from bench.fleet.running import Order
from bench.measures import Measure, Ready, measures, run
from bench.meters import Spent
from bench.places import Places
from dataflow_assets.spark.session import Spark, SparkSettings

BACKLOG = 20_000_000  # messages
WAITING = 5_000_000

_Measured = Callable[[Places, Spark, argparse.Namespace], Any]


def _in_rounds(run: Callable[[Places, Spark, int, int], Any], count: int) -> _Measured:
    """A measure of so many messages, or as many as are asked for, several times."""
    return lambda found, spark, given: run(found, spark, given.messages or count, given.rounds)


MEASURED: Mapping[str, tuple[str, _Measured]] = {
    "tiny": ("tiny micro-batches", lambda found, spark, _: tiny.run(found, spark)),
    "age": ("age of changes", lambda found, spark, _: age.run(found, spark)),
    "flow-trino": (
        "a table behind Trino",
        _in_rounds(coordinator.run, coordinator.LARGEST),
    ),
    "justone": (
        "JustOne's properties",
        _in_rounds(justone.run, justone.MESSAGES),
    ),
    "changes": (
        "changes of a followed table",
        _in_rounds(changes.run, changes.CHANGES),
    ),
    "log-memory": (
        "log that waits, and a large transaction",
        lambda found, spark, _: log_memory.run(found, spark),
    ),
    "connect": (
        "connectors of Kafka Connect",
        _in_rounds(connect.run, connect.LINES),
    ),
    "sql": (
        "queries with state",
        _in_rounds(streaming_sql.run, streaming_sql.MESSAGES),
    ),
    "sql-memory": (
        "a state that grows",
        lambda found, spark, given: streaming_sql.memory(
            found, spark, given.messages or streaming_sql.MOST_KEYS
        ),
    ),
    "memory": (
        "backlog",
        lambda found, spark, given: backlog.run(found, spark, given.messages or BACKLOG),
    ),
}
"""What servers are needed for, by the word that asks for it: its title, and what measures it."""
KINDS = ("flows", "steps", *MEASURED, *CASES)


def main() -> None:
    """Measure what is asked for, print it, write it down; exit code 1 when a target is missed."""
    arguments = _arguments()
    logging.basicConfig(level=logging.ERROR)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    only = set(arguments.measures or ("flows", "tiny", "steps"))
    result: dict[str, Any] = {"machine": report.machine()}
    try:
        _measure(arguments, only, result)
    finally:
        arguments.result.parent.mkdir(parents=True, exist_ok=True)
        arguments.result.write_text(json.dumps(result, indent=1) + "\n")
    report.show(result)
    sys.exit(0 if report.passed(result) else 1)


def _measure(arguments: argparse.Namespace, only: set[str], result: dict[str, Any]) -> None:
    """Adds to the result what has been measured, whatever happens afterwards."""
    if "steps" in only:
        _say("steps")
        result["steps"] = steps.run()
    if fleets := only & CASES.keys():
        result["fleet"] = {}
        order = Order(
            arguments.flows, arguments.minutes, arguments.drive, arguments.messages or WAITING
        )
        result["fleet"].update(run_fleet(order, fleets, _say))
    if only - {"steps"} - CASES.keys():
        with _places(arguments.servers) as found:
            spark = Spark(SparkSettings(where=found.spark.remote))
            result |= _measured(arguments, found, spark, only)
            spark.close()


def _interrupt(*_: object) -> None:
    """Once; asking twice changes nothing, for half a stop leaves processes."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "measures", nargs="*", metavar="MEASURE", help=f"{', '.join(KINDS)}, or a measure of flows"
    )
    parser.add_argument("--servers", type=Path, help="folder of running servers to use")
    parser.add_argument(
        "--messages", type=int, help=f"4000000; of the backlog 20000000; of fleet-backlog {WAITING}"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--flows", type=int, default=200, help="of a fleet")
    parser.add_argument("--minutes", type=float, default=5, help="that a fleet is watched")
    parser.add_argument("--drive", choices=DRIVES, default="dagster", help="of a fleet")
    parser.add_argument("--result", type=Path, default=Path(".data/bench.json"))
    return parser.parse_args()


@contextmanager
def _places(servers: Path | None) -> Iterator[Places]:
    with tempfile.TemporaryDirectory(prefix="dataflow-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)  # the database may run as another user
        if servers is not None:
            with places.running(servers, folder) as found:
                yield found
            return
        _say("starting servers")
        with places.own(folder) as found:
            yield found


def _measured(
    arguments: argparse.Namespace, found: Places, spark: Spark, only: set[str]
) -> dict[str, Any]:
    """What servers are needed for; without a wish not the backlog, which takes minutes more."""
    result: dict[str, Any] = {}
    if only - set(KINDS) or "flows" in only:
        count = arguments.messages or 4_000_000
        _round(_prepared(found, spark, count // 8), "warm-up", only)
        result["flows"] = _rounds(_prepared(found, spark, count), arguments.rounds, only)
    for name, (title, measured) in MEASURED.items():
        if name in only:
            _say(title)
            result[name.removeprefix("flow-")] = measured(found, spark, arguments)
    return result


def _prepared(found: Places, spark: Spark, count: int) -> Ready:
    """Topics and rows: all messages, and a quarter of them for upserts."""
    counts = {"all": count, "keys": count // 4}
    rows = {name: messages.write_rows(found.folder, each) for name, each in counts.items()}
    ready = Ready(found, spark, counts, rows)
    for name, each in counts.items():
        seconds = messages.filled(found.bootstrap, ready.topic(name), each)
        _say(f"{each} messages in {seconds:.0f} s")
    return ready


def _rounds(ready: Ready, rounds: int, only: set[str]) -> dict[str, Any]:
    found = [_round(ready, f"round {number + 1}", only) for number in range(rounds)]
    spent = {name: [each[name] for each in found] for name in found[0]}
    counts = {m.name: ready.counts[m.topic] for m in measures(ready)}
    return report.figures(spent, counts)


def _round(ready: Ready, label: str, only: set[str]) -> dict[str, Spent]:
    spent: dict[str, Spent] = {}
    for measure in measures(ready):
        if "flows" in only or measure.name in only:
            found = spent[measure.name] = run(ready, measure)
            _say(f"{label}: {_line(measure, ready.counts[measure.topic], found)}")
    return spent


def _line(measure: Measure, count: int, spent: Spent) -> str:
    cpu = sum(spent.cpu.values()) / count * 1e6
    return f"{measure.name} {count / spent.seconds / 1e3:.0f} krows/s, {cpu:.2f} cpu-s/M"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
