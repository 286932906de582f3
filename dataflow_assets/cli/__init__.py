"""The `dataflow` command: flows without Dagster's user interface, for people and for scripts.

Exit codes: 0 all well, 1 a finding or a failure (said in one sentence), 2 a wrong command line,
130 and 143 ended by Ctrl-C and SIGTERM.
"""

from dataflow_assets.cli.main import main

__all__ = ["main"]
