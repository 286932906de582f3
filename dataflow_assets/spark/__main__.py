"""Serves Spark Connect to other machines, in the foreground: `python -m dataflow_assets.spark`.

With the settings that flows need. It asks nobody who he is: only machines that may run any code
here may reach it.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from dataflow_assets.spark.server import SparkConnect


def main() -> None:
    """Becomes the server."""
    parser = argparse.ArgumentParser(prog="python -m dataflow_assets.spark", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="for temporary files")
    parser.add_argument("--address", default="0.0.0.0", help="(default: %(default)s, all)")  # noqa: S104 - for other machines
    parser.add_argument("--port", type=int, default=15002, help="(default: %(default)s)")
    parser.add_argument("--memory", default="4g", help="of the driver (default: %(default)s)")
    parser.add_argument(
        "--master",
        default="local[*,4]",
        help="where Spark's jobs run (default: %(default)s, all cores of this machine)",
    )
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    server = SparkConnect(
        folder=asked.folder,
        ports={"connect": asked.port},
        master=asked.master,
        memory=asked.memory,
        conf={"spark.connect.grpc.binding.address": asked.address},
    )
    command = server.command()
    os.chdir(asked.folder)
    os.execve(command[0], command, {**os.environ, **server.environment()})  # noqa: S606 - no shell


if __name__ == "__main__":
    main()
