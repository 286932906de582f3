"""The suite: `make test`, and with `--full` every law on Spark with every other end."""

import os
from pathlib import Path

# Also for the processes that tests start. Their Java compiles once: broker and Spark live too short
# for a second, better compilation, which takes half of their time.
os.environ["DATAFLOW_DOUBLES"] = "1"
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")

ROOT = Path(__file__).parents[1]
