"""The engine's messages while a command works, as lines beside its display, without secrets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from typing_extensions import override

from dataflow_assets.flow import Flow
from dataflow_assets.runs.redaction import mask

Say = Callable[[str], None]


@contextmanager
def show_log(say: Say, flows: Iterable[Flow], verbose: bool) -> Iterator[None]:
    """The engine's warnings; with `verbose` everything, and other libraries' too."""
    handler = _LogLines(say, tuple(flows))
    log = logging.getLogger(None if verbose else "dataflow_assets")
    silence = logging.NullHandler()
    logging.getLogger().addHandler(silence)  # or Python would print other libraries' warnings
    log.addHandler(handler)
    engine = logging.getLogger("dataflow_assets")
    level = engine.level
    engine.setLevel(logging.INFO if verbose else logging.WARNING)
    try:
        yield
    finally:
        engine.setLevel(level)  # the process may log something else afterwards
        log.removeHandler(handler)
        logging.getLogger().removeHandler(silence)


class _LogLines(logging.Handler):
    """Log records as lines."""

    def __init__(self, say: Say, flows: tuple[Flow, ...]) -> None:
        super().__init__()
        self._say = say
        self._flows = flows

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self._say(mask(self.format(record), self._flows))
