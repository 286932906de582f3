"""The stored checkpoints of branches, for whoever looks and takes no epoch.

A module of its own, so that the client is imported only where a checkpoint is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from functools import partial

from dataflow_assets.connectors.trino.client import TrinoClient
from dataflow_assets.connectors.trino.options import TrinoSinkOptions
from dataflow_assets.connectors.trino.table import checkpoint_table
from dataflow_assets.contracts import Checkpoint, Target
from dataflow_assets.errors import DataflowError, outcome
from dataflow_assets.sdk.server_failure import translate_errors
from dataflow_assets.sdk.sink.state import BranchState


def peek_together(
    asked: Sequence[tuple[TrinoSinkOptions, Target]],
) -> list[Checkpoint | DataflowError | None]:
    """The stored checkpoints of branches of one coordinator, over one connection."""
    with closing(TrinoClient(asked[0][0], "dataflow-status")) as client:
        return [outcome(partial(_peek, client, sink, target)) for sink, target in asked]


def _peek(client: TrinoClient, sink: TrinoSinkOptions, target: Target) -> Checkpoint | None:
    with translate_errors(f"reading the checkpoint of {sink.address()}"):
        (found,) = checkpoint_table.peek(client, sink, [target])
    if found is None:
        return None
    state = BranchState(found.checkpoint, found.intent)
    return state.for_readers if state.is_known else None
