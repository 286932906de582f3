"""`python -m devservers up|down|show FOLDER [--spark]`."""

from __future__ import annotations

import argparse
from pathlib import Path

from devservers import down, read, up


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m devservers", description=__doc__)
    parser.add_argument("action", choices=["up", "down", "show"])
    parser.add_argument("folder", type=Path, help="where data, logs and servers.json are kept")
    parser.add_argument("--spark", action="store_true", help="a Spark Connect server as well")
    arguments = parser.parse_args()
    if arguments.action == "up":
        up(arguments.folder, spark=arguments.spark)
    elif arguments.action == "down":
        down(arguments.folder)
    else:
        for server in read(arguments.folder).running():
            print(server.name, {**server.endpoints()})  # noqa: T201 (its purpose)


if __name__ == "__main__":
    main()
