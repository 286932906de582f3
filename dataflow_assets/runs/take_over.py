"""Goes back to where the program stopped that has driven a flow before."""

from __future__ import annotations

from contextlib import closing

from dataflow_assets.contracts import Run
from dataflow_assets.errors import PermanentError
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.runs.start_positions import first


def take_over(flow: Flow, run: Run) -> list[Branch]:
    """Stores the positions beside each branch's table as its start, under an epoch of its own.

    Called by `dataflow reset --checkpoint` without a file. Raises PermanentError for a flow whose
    tables no other program can have filled, and what `first` raises.
    """
    resolved = flow.resolved()
    with closing(resolved.source.open(flow.id)) as source:
        for branch in resolved.branches:
            with closing(branch.sink.open(resolved.target(branch), run)) as session:
                if session.inherited() is None:
                    raise PermanentError(
                        f"flow {flow.id}: {branch.address} has no positions of another program: "
                        f"name the file with the DataFlow Operator's checkpoint: --checkpoint FILE"
                    )
                session.restart(first(source, session), source.identity)
    return list(resolved.branches)
