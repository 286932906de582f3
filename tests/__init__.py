"""The suite: `make test`, and with `--full` every law on Spark with every other end."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
