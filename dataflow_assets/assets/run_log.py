"""What the engine logs, in the log of the run, without secrets."""

import logging
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import dagster as dg

from dataflow_assets.flow import Flow
from dataflow_assets.redaction import mask

Context = dg.AssetExecutionContext | dg.OpExecutionContext


@contextmanager
def logged(flow: Flow, context: Context) -> Iterator[None]:
    """What is logged about the flow until the block ends."""
    with _heard(_ToRun(flow, context)):
        yield


class _ToRun(logging.Handler):
    """Carries what the engine says into the run's log at once."""

    def __init__(self, flow: Flow, context: Context) -> None:
        super().__init__(logging.INFO)
        self._flow, self._context = flow, context

    def emit(self, record: logging.LogRecord) -> None:
        self._context.log.log(record.levelno, mask(self.format(record), [self._flow]))


class Lines(logging.Handler):
    """What the engine says about many flows, each in a thread of its own that is named for it.

    Every line names its flow, so that the run's log can be filtered. Only one thread writes into
    the log of a run: it takes what was gathered.
    """

    def __init__(self, flows: Mapping[str, Flow]) -> None:
        super().__init__(logging.INFO)
        self._flows = flows
        self._lines: deque[tuple[int, str]] = deque()

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Gathers until the block ends."""
        with _heard(self):
            yield

    def add(self, level: int, text: str) -> None:
        """One more line, without secrets."""
        self._lines.append((level, text))

    def take(self) -> dict[int, list[str]]:
        """What was gathered since the last call, by the level of `logging`; called each second."""
        found = defaultdict[int, list[str]](list)
        while self._lines:
            level, text = self._lines.popleft()
            found[level].append(text)
        return found

    def emit(self, record: logging.LogRecord) -> None:
        """Called in any thread."""
        text, flow = self.format(record), self._flow(record)
        if flow is not None:
            named = text if f"flow {flow.id}" in text else f"flow {flow.id}: {text}"
            text = mask(named, [flow])
        self.add(record.levelno, mask(text, ()))

    def _flow(self, record: logging.LogRecord) -> Flow | None:
        thread = record.threadName or ""
        return self._flows.get(thread.removeprefix("flow "))


@contextmanager
def _heard(handler: logging.Handler) -> Iterator[None]:
    logger = logging.getLogger("dataflow_assets")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
