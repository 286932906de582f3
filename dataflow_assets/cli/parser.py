"""The commands of the command line, and what each of them takes."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from dataflow_assets.cli import commands, kubernetes, previewing, values

Add = Callable[..., argparse.ArgumentParser]

PATHS = "manifests, or folders of them"
_OPTION = re.compile(r"--[a-z][a-z-]*")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("dataflow-assets")
    except PackageNotFoundError:  # a copy of the source that was never installed
        return "(not installed)"


def command_line() -> argparse.ArgumentParser:
    """All commands with their options; each has the function that runs it as `command`."""
    parser = argparse.ArgumentParser(
        prog="dataflow", description="Check, preview, run and inspect data flows."
    )
    parser.add_argument("--version", action="version", version=f"dataflow {_version()}")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--verbose", action="store_true", help="more about errors and progress")
    several = parser.add_subparsers(required=True, metavar="COMMAND")
    for declare in COMMANDS.values():
        declare(partial(several.add_parser, parents=[common]))
    return parser


def _check(add: Add) -> None:
    parser = add(
        "check",
        help="report everything that is wrong with manifests; no server is asked, but for the "
        "stored tables of files that declare some",
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", type=Path, help=PATHS)
    parser.add_argument("--strict", action="store_true", help="exit 1 for notes as well")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    parser.set_defaults(command=commands.check)


def _schema(add: Add) -> None:
    parser = add(
        "schema",
        help="print the JSON Schema of manifests, for editors",
        description="Prints the JSON Schema of manifests: editors complete keys by it, show what "
        "they mean, and mark mistakes. Put it into a file, and say where it is in the first line "
        "of a manifest: # yaml-language-server: $schema=dataflow.schema.json",
    )
    parser.set_defaults(command=commands.schema)


def _preview(add: Add) -> None:
    parser = add(
        "preview",
        help="what the steps of a flow make of records; nothing is stored or moved",
        description="Shows records before and after every step: the records that the flow would "
        "read next, or those of a file, for which no server is needed. Nothing is stored, and no "
        "checkpoint or consumer group moves.",
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", type=Path, help=PATHS)
    parser.add_argument(
        "--flow", metavar="NAME", help="name or namespace/name; needed if there are several flows"
    )
    parser.add_argument(
        "--limit",
        type=values.count,
        metavar="N",
        help="at most so many records (default: 10 live ones, all of a file)",
    )
    parser.add_argument(
        "--input",
        metavar="FILE",
        help='one JSON object a line, {"body": ..., "metadata": {...}}, or {"text": "..."} for a '
        "message that is not JSON; - is standard input",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per record")
    parser.set_defaults(command=previewing.preview)


def _run(add: Add) -> None:
    parser = add(
        "run",
        help="read up to the newest record at start, or stay on for a while",
        description="Reads every flow of PATH, one after another, up to the newest record at "
        "start. With --for all of them stay on in one process, a lane, for that long. "
        "Suspended flows are left out.",
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", type=Path, help=PATHS)
    parser.add_argument(
        "--flow",
        action="append",
        default=[],
        metavar="NAME",
        help="only this flow: name or namespace/name; may be repeated",
    )
    parser.add_argument(
        "--for",
        dest="seconds",
        type=values.duration,
        metavar="TIME",
        help="stay on for this long: seconds, or 90s, 30m, 1h, 2d",
    )
    parser.add_argument(
        "--until",
        type=values.time,
        metavar="TIME",
        help="read what came before this time, an ISO 8601 timestamp",
    )
    parser.add_argument(
        "--from",
        dest="start",
        type=values.start,
        default="checkpoint",
        metavar="PLACE",
        help="checkpoint (default), earliest, latest, an ISO 8601 timestamp, or offsets such as "
        "0=120,1=300",
    )
    parser.add_argument(
        "--table",
        choices=["keep", "truncate", "adopt"],
        default="keep",
        help="with --from, keep or truncate: what happens to the rows already there; adopt, "
        "without --from: a table that was rebuilt or restored holds what the checkpoint says",
    )
    parser.add_argument(
        "--yes", action="store_true", help="confirm that a rewound append may store rows twice"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per commit")
    parser.set_defaults(command=commands.run)


def _replay(add: Add) -> None:
    parser = add(
        "replay",
        help="retry rejected records after you fixed the cause",
        description="Retries the rejected records of a flow: from its error sink, or from the "
        "table of rejected records beside its tables. Each is stored at most once; what is "
        "rejected again waits for the next replay. The flow itself may run meanwhile.",
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", type=Path, help=PATHS)
    parser.add_argument("--flow", required=True, metavar="NAME", help="name or namespace/name")
    parser.add_argument(
        "--since",
        type=values.moment,
        metavar="TIME",
        help="only what was rejected at this time or later, an ISO 8601 timestamp with its zone",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per replayed part")
    parser.set_defaults(command=_run_replay)


def _run_replay(asked: argparse.Namespace) -> int:
    from dataflow_assets.cli.replaying import replay  # takes PyArrow along

    return replay(asked)


def _status(add: Add) -> None:
    parser = add("status", help="checkpoint, source end and lag of every flow")
    parser.add_argument("paths", nargs="+", metavar="PATH", type=Path, help=PATHS)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument(
        "--offsets", action="store_true", help="how far each task of the source has come"
    )
    parser.set_defaults(command=commands.status)


def _metrics(add: Add) -> None:
    parser = add(
        "metrics",
        help="what flows have done and how far they are behind, for Prometheus",
        description="Serves what the flows of this machine have counted (in DATAFLOW_METRICS, else "
        "in DAGSTER_HOME), and how far every flow of PATH is behind, in the text format of "
        "Prometheus, until it is ended. Sources and sinks are asked on each scrape, at most every "
        "five seconds; the flows may run anywhere.",
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", type=Path, help=PATHS)
    parser.add_argument(
        "--listen",
        type=values.listen,
        default=("127.0.0.1", 9464),
        metavar="HOST:PORT",
        help="where to listen (default: 127.0.0.1:9464); port 0 is any free one",
    )
    parser.set_defaults(command=_run_metrics)


def _run_metrics(asked: argparse.Namespace) -> int:
    from dataflow_assets.cli.metrics import metrics  # takes Prometheus' client along

    return metrics(asked)


def _reset(add: Add) -> None:
    parser = add("reset", help="forget a flow's checkpoint; its rows stay")
    parser.add_argument("paths", nargs="+", metavar="PATH", type=Path, help=PATHS)
    parser.add_argument("--flow", required=True, metavar="NAME", help="name or namespace/name")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    one = parser.add_mutually_exclusive_group()
    one.add_argument(
        "--table",
        action="append",
        default=[],
        metavar="NAME",
        help="keep the checkpoint; the next run loads the rows of this table of a postgresql-cdc "
        "source again, while its other tables are followed. May be repeated",
    )
    one.add_argument(
        "--checkpoint",
        type=Path,
        nargs="?",
        const=True,
        metavar="FILE",
        help="start where the DataFlow Operator stopped: its ConfigMap, or the checkpoint.json in "
        "that; without FILE where the program that filled the tables stopped, by the positions "
        "that it keeps beside them and its consumer group",
    )
    parser.set_defaults(command=commands.reset)


def _servers(add: Add) -> None:
    parser = add(
        "servers",
        help="Kafka, PostgreSQL, SeaweedFS, ClickHouse and Spark for trying out",
    )
    parser.add_argument("action", choices=["up", "down"])
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(".data/servers"),
        help="data, logs and servers.json (default: %(default)s)",
    )
    parser.add_argument("--no-spark", action="store_true", help="no Spark Connect server")
    parser.set_defaults(command=commands.servers)


def _demo(add: Add) -> None:
    parser = add("demo", help="a shop's events, live, in Dagster; Ctrl-C ends all of it")
    parser.add_argument(
        "which",
        nargs="?",
        choices=["orders", "lake", "cdc"],
        default="orders",
        help="orders: a topic into PostgreSQL, Iceberg and ClickHouse (default); lake: Avro over "
        "mTLS, Nessie and Trino, needs Java 24; cdc: a database followed in another one",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help="data and logs, kept for the next start "
        "(default: .data/demo, .data/demo-lake or .data/demo-cdc)",
    )
    parser.set_defaults(command=commands.demo)


COMMANDS = {
    "check": _check,
    "schema": _schema,
    "preview": _preview,
    "run": _run,
    "replay": _replay,
    "status": _status,
    "metrics": _metrics,
    "reset": _reset,
    "k8s": kubernetes.declare,
    "servers": _servers,
    "demo": _demo,
}
"""Every command, and the function that declares what it takes."""


def options_of(command: str) -> list[str]:
    """The options that a command takes, for a message about one that it does not take."""
    parsers = list[argparse.ArgumentParser]()

    def add(name: str, *, help: str, **more: Any) -> argparse.ArgumentParser:  # noqa: A002, ARG001 - argparse's own name
        parsers.append(argparse.ArgumentParser(name, **more))
        return parsers[-1]

    COMMANDS[command](add)
    return _OPTION.findall(parsers[0].format_help())
