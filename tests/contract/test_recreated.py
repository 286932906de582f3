"""A topic that is made anew while the flow reads: nothing of it is taken for the old one's."""

from __future__ import annotations

import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from dataflow_assets.errors import DataflowError, PermanentError
from dataflow_assets.runs.request import Report
from tests.contract import SOURCES
from tests.contract.conftest import Case, numbered
from tests.contract.drivers import OffsetSourceDriver

RECREATABLE = sorted(
    name for name, driver in SOURCES.items() if issubclass(driver, OffsetSourceDriver)
)


Wait = Callable[[threading.Thread], None]
"""Returns once the driver, or a task of it, is held; fails where the driver has ended before."""
Held = AbstractContextManager[Wait]


@contextmanager
def held(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str) -> Iterator[Wait]:
    """Holds whoever reaches the failpoint until the block ends.

    How long a server takes until then is not known: the test's own timeout is the only bound.
    """
    gate, token = folder / "gate", uuid.uuid4().hex
    gate.touch()
    monkeypatch.setenv("DATAFLOW_FAILPOINT", f"{name}:file")
    monkeypatch.setenv("DATAFLOW_FAILPOINT_FILE", str(gate))
    monkeypatch.setenv("DATAFLOW_FAILPOINT_TOKEN", token)
    reached = Path(tempfile.gettempdir(), f"dataflow-failpoint-{name}-{token}")

    def wait(driver: threading.Thread) -> None:
        while not reached.exists():
            assert driver.is_alive() or reached.exists(), f"the driver ended before {name}"
            time.sleep(0.01)

    try:
        yield wait
    finally:
        gate.unlink()
        reached.unlink(missing_ok=True)
        monkeypatch.delenv("DATAFLOW_FAILPOINT", raising=False)


class Draining(threading.Thread):
    """A drain of its own; `error` is what ended it."""

    def __init__(self, reports: Iterator[Report]) -> None:
        super().__init__()
        self._reports = reports
        self.error: DataflowError | None = None
        self.start()

    def ended(self) -> DataflowError | None:
        """Waits for the end, however slow the servers are; what it was."""
        self.join()
        return self.error

    def run(self) -> None:
        try:
            list(self._reports)
        except DataflowError as error:
            self.error = error


@pytest.mark.parametrize("sink", ["postgresql"], indirect=True)
@pytest.mark.parametrize("source", ["kafka"], indirect=True)
def test_nothing_is_stored_of_a_slice_during_which_the_topic_was_made_anew(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = case.source
    assert isinstance(source, OffsetSourceDriver)
    source.seed(numbered(1, 9))
    with held(monkeypatch, tmp_path, "postgresql.copy") as wait:
        draining = Draining(case.reports())
        wait(draining)
        source.recreate()
    assert "was recreated since the last commit" in str(draining.ended())
    assert len(case.sink.rows()) <= 4  # the other partition's, committed before all this


@pytest.mark.parametrize("source", RECREATABLE, indirect=True)
def test_nothing_of_a_topic_made_anew_between_plan_and_read_is_stored(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = case.source
    assert isinstance(source, OffsetSourceDriver)
    source.seed(numbered(1, 9))
    with held(monkeypatch, tmp_path, "drain.begun") as wait:
        draining = Draining(case.reports())
        wait(draining)
        source.recreate()
        source.seed(numbered(101, 121))
    error = draining.ended()
    case.expect([])
    assert isinstance(error, PermanentError), error
    assert "was recreated since the last commit" in str(error)
    assert case.totals().rows == 0
    case.drain(on_topic_recreated="restart")
    case.expect(numbered(101, 121))
