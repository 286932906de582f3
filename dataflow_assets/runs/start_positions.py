"""The beginning of a run: the checkpoint, unless source, target, manifest or a person differ."""

from __future__ import annotations

import logging

from dataflow_assets.contracts import (
    Checkpoint,
    PartSlice,
    Positions,
    SinkSession,
    SourceSession,
    Span,
    lasting,
)
from dataflow_assets.contracts.capabilities import ReloadsTables, TakesOverPositions
from dataflow_assets.errors import Outdated, PermanentError, blame
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.languages.promises import RewindsTargets, TakesOver
from dataflow_assets.runs.request import Start

log = logging.getLogger(__name__)


_OTHERS = (
    "its {} are others now. Start from earliest with table: truncate, or run dataflow reset and "
    "keep the stored rows"
)
_ADVICE = {
    "messages": "its offsets mean other records now. Set onTopicRecreated: restart to read it from "
    "its beginning, or run dataflow reset",
    "columns": _OTHERS.format("rows"),
    "entries": _OTHERS.format("records"),
}


def settle(
    flow: Flow, branch: Branch, source: SourceSession, session: SinkSession, start: Start
) -> None:
    """Stores where this run begins before it reads anything, unless the checkpoint stands.

    Raises PermanentError when a person must decide: the topic was recreated, or rewinding would
    store the records of an appended table twice.
    """
    _check_start(flow, start)
    if start.at == "checkpoint":
        _check_understood(flow, source, session)
    if start.at != "checkpoint":
        _rewind(flow, branch, source, session, start)
    elif not session.checkpoint.positions:
        _begin(flow, branch, source, session, start)
    elif session.checkpoint.source not in (None, source.identity):
        _read_recreated(flow, source, session)
    elif session.checkpoint.target not in (None, session.table.identity):
        _meet_another(flow, branch, source, session, start)
    elif flow.policies.checkpoint_reset and session.checkpoint.manifest != flow.hash:
        log.warning("flow %s: checkpointReset: starting over", flow.id)
        session.restart(source.start(), source.identity)
    elif start.reload or (flow.source.traits.loads_each_run and not start.resumed):
        # The rows of some tables, or of all of them, while changes are followed from the
        # checkpoint. What is stored of an unfinished micro-batch comes again, which upserts bear.
        # Where each run loads all tables, a load that is not finished goes on, unless the sink
        # cannot finish it.
        positions = again(flow, branch, source, session.checkpoint, start)
        goes_on = not start.reload and bool(_loads(source, session.checkpoint))
        if not (goes_on and _can_finish(session)):
            session.restart(positions, source.identity)


def _check_start(flow: Flow, start: Start) -> None:
    """Raises PermanentError where two of its choices exclude each other."""
    if start.table == "adopt" and start.at != "checkpoint":
        raise PermanentError(
            f"flow {flow.id}: table: adopt goes on from the checkpoint, and cannot be used with "
            f"start: {start.at}. Leave start out, or choose table: keep or truncate"
        )
    if start.reload and start.at != "checkpoint":
        raise PermanentError(
            f"flow {flow.id}: reload goes on from the checkpoint, and cannot be used with start: "
            f"{start.at}, which loads all tables again. Leave one of the two out"
        )
    if start.table == "truncate" and start.at == "checkpoint":
        raise PermanentError(
            f"flow {flow.id}: table: truncate cannot be used without start: the rows that were "
            f"read would not be read again. Choose start: earliest, or leave table out"
        )


def _check_understood(flow: Flow, source: SourceSession, session: SinkSession) -> None:
    positions = lasting(session.checkpoint.positions)
    if positions and isinstance(source, TakesOverPositions) and not source.understands(positions):
        raise PermanentError(
            f"flow {flow.id}: its checkpoint was written when the flow read {flow.source_address} "
            "in another way (a query of SQL with state, without, or over other tables): begin "
            "again, with start: earliest (dataflow run --from earliest)"
        )


def again(
    flow: Flow, branch: Branch, source: SourceSession, known: Checkpoint, start: Start
) -> Positions:
    """From where a branch that has begun loads tables again. Nothing is changed.

    Called on the driver when a branch opens, and before any of them does where a person has asked
    for the load. Of a load that died the rows may have been deleted since: the changes since then
    come first.

    Args:
        flow: with its secrets in place.
        branch: of the flow.
        source: its open session.
        known: the branch's checkpoint.
        start: which tables; none: all of them.

    Raises:
        PermanentError: the source has no such table, rows would be stored twice, or a load is not
            finished.
    """
    if not isinstance(source, ReloadsTables):
        raise PermanentError(
            "this source loads no single table again; begin again with start: earliest"
        )
    positions, upserts = known.positions, branch.sink.traits.upserts
    loads = _loads(source, known)
    if loads and start.reload:
        raise PermanentError(
            f"flow {flow.id}: rows of {branch.address} are being loaded, and that is not "
            f"finished. Let the flow run once, then load {', '.join(start.reload)} again"
        )
    if not upserts:
        _check_appended(flow, branch, positions, start)
    elif loads:
        positions = source.fold({one.partition: one.upto for one in loads})
    return source.again(positions, start.reload, upserts=upserts)


def check_again(flow: Flow, branch: Branch, source: SourceSession, start: Start) -> None:
    """Raises what `again` raises, while whoever drives the flow goes on.

    Called on the driver for each branch, before the first one of them is taken over.
    """
    _check_start(flow, start)
    with blame(branch.id):
        checkpoint = branch.sink.peek(flow.target(branch))
    if checkpoint is not None and checkpoint.positions:
        again(flow, branch, source, checkpoint, start)


def check_opened(
    flow: Flow, branch: Branch, source: SourceSession, session: SinkSession, start: Start
) -> None:
    """Raises what `again` raises, now that nobody else can begin a load.

    Called on the driver for each branch once all are open, before the first one is changed.
    """
    if session.checkpoint.positions:
        again(flow, branch, source, session.checkpoint, start)


def _loads(source: SourceSession, known: Checkpoint) -> list[PartSlice]:
    if not isinstance(source, ReloadsTables):
        return []
    return [one for one in known.unfinished if source.is_load(one)]


def _can_finish(session: SinkSession) -> bool:
    try:
        session.begin(Span(()))
    except Outdated as error:
        log.warning("%s. It is left, and all tables are loaded again", error)
        return False
    return True


def _check_appended(flow: Flow, branch: Branch, positions: Positions, start: Start) -> None:
    tables = ", ".join(start.reload)
    if not start.confirmed:
        raise PermanentError(
            f"flow {flow.id}: {branch.address} is appended to: loading {tables} again would store "
            f"its rows twice. Delete the rows of {tables} there while the flow does not run, and "
            "confirm (--yes; in the launchpad confirm: true)"
        )
    if lasting(positions) != dict(positions):
        raise PermanentError(
            f"flow {flow.id}: a micro-batch into {branch.address} is stored in part, and rows "
            f"would be stored twice. Let the flow run once, then load {tables} again"
        )


def _begin(
    flow: Flow, branch: Branch, source: SourceSession, session: SinkSession, start: Start
) -> None:
    """The first run of the branch, or the first one since its checkpoint was lost."""
    if start.table == "adopt" and session.table.holds_rows():
        raise PermanentError(
            f"flow {flow.id}: table: adopt goes on from the checkpoint, and {branch.address} holds "
            f"rows, but the flow has no checkpoint to go on from: it was reset, or was not "
            f"restored or moved together with the rows. Restore it, or choose where to begin: start"
        )
    session.restart(first(source, session), source.identity)


def first(source: SourceSession, session: SinkSession) -> Positions:
    """The beginning of a branch without a checkpoint: where the program before it has stopped.

    Called on the driver, when the branch begins and by `dataflow reset --checkpoint`. Raises
    TransientError while that program still writes; PermanentError when a person must decide.
    """
    if not isinstance(session, TakesOver):
        return source.start()
    inherited = session.inheritance()
    if isinstance(source, TakesOverPositions):
        return source.take_over(inherited)
    return {**source.start(), **inherited}


def _meet_another(
    flow: Flow, branch: Branch, source: SourceSession, session: SinkSession, start: Start
) -> None:
    """The target was made again under its name. Whether its rows are those read is not known."""
    noun = "table" if branch.sink.takes == "columns" else "topic"
    other = session.table.difference or (
        f"is another {noun} now (its id has changed since the last commit)"
    )
    if session.table.identity is None or not session.table.holds_rows():
        log.warning("flow %s: %s %s, and empty: starting over", flow.id, branch.address, other)
        session.restart(source.start(), source.identity)
    elif start.table == "adopt":
        log.warning("flow %s: %s %s: adopted", flow.id, branch.address, other)
        session.adopt()
    else:
        raise PermanentError(
            f"flow {flow.id}: {branch.address} {other}, and it holds rows. If these are the rows "
            f"that it shall have of what this flow has read (the {noun} was rebuilt, restored, "
            f"moved or repaired), go on from the checkpoint: run once "
            f"with table: adopt (dataflow run --table adopt). If they are not, begin again: start: "
            f"earliest, table: truncate (dataflow run --from earliest --table truncate)"
        )


def _read_recreated(flow: Flow, source: SourceSession, session: SinkSession) -> None:
    if flow.policies.on_topic_recreated != "restart":
        raise PermanentError(
            f"flow {flow.id}: {_sources(flow)} was recreated since the last commit (it has "
            f"another id): {_ADVICE[flow.source.delivers]}"
        )
    log.warning("flow %s: the topic was recreated: reading from its start", flow.id)
    before = session.checkpoint.positions
    session.restart(_rewound(source, source.start("earliest"), before), source.identity)


def _sources(flow: Flow) -> str:
    """All that it reads: ids tell that one is another, not which."""
    names = [str(one) for one in flow.read_addresses]
    return names[0] if len(names) == 1 else f"one of {', '.join(names)}"


def _rewind(
    flow: Flow, branch: Branch, source: SourceSession, session: SinkSession, start: Start
) -> None:
    keeps_rows = start.table == "keep" and start.at != "latest"
    if keeps_rows and not branch.sink.traits.upserts and not start.confirmed:
        raise PermanentError(
            f"flow {flow.id}: {branch.address} is appended to: rewinding would store its records "
            "twice. Empty the table first (--table truncate; in the launchpad table: truncate), or "
            "confirm that (--yes; in the launchpad confirm: true)"
        )
    empty, before = start.table == "truncate", session.checkpoint.positions
    stay = start.at == "earliest" and not empty
    chosen = _rewound(source, _choose(flow, source, start), before, stay=stay)
    session.restart(chosen, source.identity, empty=empty)


def _rewound(
    source: SourceSession, chosen: Positions, before: Positions, *, stay: bool = False
) -> Positions:
    if isinstance(source, RewindsTargets):
        return source.rewound(chosen, before, stay=stay)
    return chosen


def _choose(flow: Flow, source: SourceSession, start: Start) -> Positions:
    if start.at == "offsets":
        earliest = source.start("earliest")
        if unknown := sorted(set(start.offsets) - set(earliest)):
            raise PermanentError(
                f"flow {flow.id}: start: offsets names partition {', '.join(unknown)}, but "
                f"{flow.source_address} has partitions {', '.join(earliest)}"
            )
        return {**earliest, **start.offsets}
    if start.at == "timestamp":
        if start.timestamp is None:
            raise PermanentError("start: timestamp needs a timestamp, e.g. 2026-01-31T00:00:00Z")
        return source.start(start.timestamp)
    return source.start(start.at)
