"""Many sources of one class and server, asked at once where they can be, else one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import cast

from dataflow_assets.contracts import Lag, Positions, Source, SourceSession
from dataflow_assets.contracts.looking import EndsOfMany, LagsOfMany, OpensMany
from dataflow_assets.errors import DataflowError, outcome


def open_together(sources: Mapping[str, Source]) -> dict[str, SourceSession | DataflowError]:
    """Opens many sources: by the flow its session, or the error that `open` has raised."""
    kind: type = type(next(iter(sources.values())))
    if issubclass(kind, OpensMany):
        return kind.open_together(cast("Mapping[str, OpensMany]", sources))
    return {flow: outcome(partial(one.open, flow)) for flow, one in sources.items()}


def ends_together(sessions: Sequence[SourceSession]) -> list[Positions | DataflowError]:
    """The ends of each, or the error that `end` has raised."""
    kind: type = type(sessions[0])
    if issubclass(kind, EndsOfMany):
        return kind.ends_together(cast("Sequence[EndsOfMany]", sessions))
    return [outcome(one.end) for one in sessions]


def lags_together(
    asked: Sequence[tuple[SourceSession, Positions | None]],
) -> list[Lag | DataflowError]:
    """The lag of each branch, by its positions or from the start, or the error in its place."""
    kind: type = type(asked[0][0])
    if issubclass(kind, LagsOfMany):
        return kind.lags_together(cast("Sequence[tuple[LagsOfMany, Positions | None]]", asked))
    return [outcome(partial(_lag, session, after)) for session, after in asked]


def _lag(session: SourceSession, after: Positions | None) -> Lag:
    return session.lag(session.start() if after is None else after)
