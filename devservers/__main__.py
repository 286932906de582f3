"""The servers and their archives from the command line."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dataflow_assets.errors import TransientError
from dataflow_assets.spark import jars
from devservers import down, read, up


def main() -> None:
    """Parse and do; a failure is a sentence and exit code 1."""
    parser = argparse.ArgumentParser(prog="python -m devservers", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    for action, text in (("up", "start"), ("down", "stop"), ("show", "where they are")):
        sub = actions.add_parser(action, help=text)
        sub.add_argument("folder", type=Path, help="of data, logs and servers.json")
        if action == "up":
            sub.add_argument("--spark", action="store_true", help="a Spark Connect server as well")
            sub.add_argument("--trino", action="store_true", help="Trino as well")
    fetch = actions.add_parser("fetch", help="fill the cache with archives of jars.lock")
    fetch.add_argument("set", nargs="*", help="of the lock; without one all but the large ones")
    pin = actions.add_parser("pin", help="print lines for jars.lock")
    pin.add_argument(
        "coordinate", nargs="+", help="group:artifact:version[:classifier][:packaging]"
    )
    try:
        _do(parser.parse_args())
    except TransientError as error:
        sys.exit(str(error))


def _do(arguments: argparse.Namespace) -> None:
    match arguments.action:
        case "up":
            up(arguments.folder, spark=arguments.spark, trino=arguments.trino)
        case "down":
            down(arguments.folder)
        case "show":
            for server in read(arguments.folder).running():
                print(server.name, {**server.endpoints()})  # noqa: T201 (what it is for)
        case "fetch":
            for name in arguments.set:
                jars.fetch(name)
            if not arguments.set:
                jars.fetch_all()
        case "pin":
            print(*jars.pin(arguments.coordinate), sep="\n")  # noqa: T201 (what it is for)


if __name__ == "__main__":
    main()
