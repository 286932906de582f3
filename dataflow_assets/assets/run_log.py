"""The engine's messages in the log of the run, without secrets."""

import logging
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import dagster as dg

from dataflow_assets.flow import Flow
from dataflow_assets.runs.redaction import mask

Context = dg.AssetExecutionContext | dg.OpExecutionContext


@contextmanager
def log_to_run(flow: Flow, context: Context) -> Iterator[None]:
    """Writes what is logged about the flow into the run's log until the block ends."""
    with _attach(_ToRun(flow, context)):
        yield


class _ToRun(logging.Handler):
    """Carries what the engine says into the run's log at once."""

    def __init__(self, flow: Flow, context: Context) -> None:
        super().__init__(logging.INFO)
        self._flow, self._context = flow, context

    def emit(self, record: logging.LogRecord) -> None:
        self._context.log.log(record.levelno, mask(self.format(record), [self._flow]))


class Lines(logging.Handler):
    """Messages of the engine about many flows, each in a thread of its own that is named for it.

    Every line names its flow, and an event has lines of one flow, so that the run's log can be
    filtered. Only one thread writes into the log of a run: it takes what was gathered.
    """

    def __init__(self, flows: Mapping[str, Flow]) -> None:
        super().__init__(logging.INFO)
        self._flows = flows
        self._new: deque[tuple[str, int, str]] = deque()
        self._waiting = dict[str, tuple[int, list[str]]]()
        """By flow its level and lines; touched by the thread that takes them alone."""

    @contextmanager
    def collect(self) -> Iterator[None]:
        with _attach(self):
            yield

    def add(self, level: int, flow: str, text: str) -> None:
        """Adds a line, without secrets; `flow`: which it is about, empty for several."""
        about = f"flow {flow}"
        if flow and not text.startswith(f"{about}:"):
            text = f"{about}: {text.removeprefix(f'{about} ')}"
        self._new.append((flow, level, text))

    def take(self, most: int | None = None) -> Iterator[tuple[int, str]]:
        """The lines of each flow as one event, with their highest level; called each second.

        `most`: of so many flows, those that wait longest first; those of the others wait.
        """
        while self._new:
            flow, level, text = self._new.popleft()
            highest, texts = self._waiting.get(flow, (level, []))
            texts.append(text)
            self._waiting[flow] = max(highest, level), texts
        for flow in list(self._waiting)[:most]:
            level, texts = self._waiting.pop(flow)
            yield level, "\n".join(texts)

    def emit(self, record: logging.LogRecord) -> None:
        text, flow = self.format(record), self._flow(record)
        hidden = text if flow is None else mask(text, [flow])
        self.add(record.levelno, "" if flow is None else flow.id, mask(hidden, ()))

    def _flow(self, record: logging.LogRecord) -> Flow | None:
        thread = record.threadName or ""
        return self._flows.get(thread.removeprefix("flow "))


@contextmanager
def _attach(handler: logging.Handler) -> Iterator[None]:
    logger = logging.getLogger("dataflow_assets")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
