"""What is asked of many flows at once is what each of them would have answered by itself."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import TypeVar

from dataflow_assets.contracts import Lag, Positions, Run, Sink, Source, SourceSession, Target
from dataflow_assets.errors import DataflowError
from dataflow_assets.runs.news import Looks, OpenSource, SourceEnd
from dataflow_assets.runs.questions import peek_all
from dataflow_assets.runs.together import ends_together, lags_together, open_together
from tests.contract.conftest import numbered
from tests.contract.drivers import SinkDriver, SourceDriver

T = TypeVar("T")
FLOWS = ["together/one", "together/two"]


def test_sources_are_asked_together_as_one_by_one(source: SourceDriver) -> None:
    source.seed(numbered(0, 5))
    declared = source.declare()
    with ExitStack() as stack:
        opened = open_together(dict.fromkeys(FLOWS, declared))
        sessions = [stack.enter_context(closing(_open(opened[flow]))) for flow in FLOWS]
        alone = stack.enter_context(closing(declared.open("together/alone")))
        ends = _agreed(
            lambda: [_timeless(one) for one in ends_together(sessions)],
            lambda: [_timeless(alone.end())] * 2,
        )
        start, end = dict(alone.start()), dict(alone.end())
        asked = [(sessions[0], start), (sessions[1], end), (sessions[1], None)]
        lags = _agreed(
            lambda: [_counted(one) for one in lags_together(asked)],
            lambda: [_counted(alone.lag(at)) for at in (start, end, start)],
        )
        assert lags[0][0] == 5 * source.knows_ahead
        news: object = (True, not source.knows_ahead, True)
        _agreed(
            lambda: _looked(declared, sessions, (start, dict(alone.end()), None), set(ends[0])),
            lambda: [news] * len(FLOWS),  # for who has nothing, all, and no position
        )


def test_checkpoints_are_read_together_as_one_by_one(sink: SinkDriver) -> None:
    declared = sink.declare()
    targets = [_target(name) for name in ("stored", "none", "other")]
    for number, target in enumerate((targets[0], targets[2])):
        with closing(declared.open(target, Run())) as session:
            session.restart({"0": 3 + number}, f"source-{number}")
    alone = [declared.peek(target) for target in targets]
    assert [one and dict(one.positions) for one in alone] == [{"0": 3}, None, {"0": 4}]
    asked: list[tuple[Sink, Target]] = [(declared, target) for target in targets]
    assert peek_all(asked) == alone


def _agreed(together: Callable[[], list[T]], alone: Callable[[], list[T]]) -> list[T]:
    """The answer of both; again while a server moves its ends with records of its own."""
    for _ in range(20):
        answer, expected = together(), alone()
        if answer == expected:
            return answer
    raise AssertionError(f"{answer} is not {expected}")


def _target(name: str) -> Target:
    return Target(f"together/{name}-{uuid.uuid4().hex[:6]}", "a:branch", "h1", "t")


def _open(session: SourceSession | DataflowError) -> SourceSession:
    assert isinstance(session, SourceSession), session
    return session


def _counted(lag: Lag | DataflowError) -> tuple[int, object]:
    assert isinstance(lag, Lag), lag
    return lag.records, _timeless(lag.ends)


def _timeless(positions: Positions | DataflowError) -> dict[str, object]:
    """Positions of polled tables, and ends of a stream, say when they were asked for."""
    assert not isinstance(positions, DataflowError), positions
    asked = r'"read_at":"[^"]*"|"visible":\d+'
    return {name: re.sub(asked, "", str(at)) for name, at in positions.items()}


def _looked(
    source: Source,
    sessions: Sequence[SourceSession],
    after: tuple[Positions | None, ...],
    partitions: set[str],
) -> list[object]:
    """Of each flow whether there is news behind these positions."""
    looked = Looks().ends_together(_together(source, sessions, after), 20)
    assert set(looked) == set(FLOWS)
    news = list[object]()
    for found in looked.values():
        assert isinstance(found, SourceEnd), found
        assert set(found.ends) == partitions
        news.append(found.news)
    return news


def _together(
    source: Source, sessions: Sequence[SourceSession], after: tuple[Positions | None, ...]
) -> dict[str, OpenSource]:
    opened = (OpenSource(source, session, after) for session in sessions)
    return dict(zip(FLOWS, opened, strict=True))
