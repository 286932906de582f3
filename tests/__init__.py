"""The suite: `make test`, and with `--full` every law on Spark with every other end."""

import os
from pathlib import Path

os.environ["DATAFLOW_DOUBLES"] = "1"  # also for the processes that tests start

ROOT = Path(__file__).parents[1]
