"""A store without room under Nessie, which has its own files there too."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog

import devservers
from dataflow_assets import failpoints
from dataflow_assets.contracts import Receipt, SinkSession, Span
from dataflow_assets.errors import TransientError
from tests.connectors.iceberg.driver import (
    SOURCE,
    TARGET,
    expected,
    ids,
    opened,
    pump,
    span_of,
    stage,
)
from tests.connectors.iceberg.full_store import FULL, SmallStore, location
from tests.connectors.nessie.driver import make_sink
from tests.contract.test_recreated import held

NAMESPACE = "small"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[devservers.Nessie]:
    """A Nessie of the test's own, on a store of its own."""
    if reason := devservers.nessie.missing():
        pytest.skip(reason)
    with (
        SmallStore(tmp_path / "store") as store,
        devservers.Nessie(tmp_path / "nessie", store=store) as server,
    ):
        yield server


class Finishing(threading.Thread):
    """The commit of a micro-batch; `error` is what it has failed with."""

    def __init__(self, session: SinkSession, span: Span, receipts: list[Receipt]) -> None:
        super().__init__()
        self._ends = session, span, receipts
        self.error: TransientError | None = None
        self.start()

    def run(self) -> None:
        session, span, receipts = self._ends
        try:
            session.finish(span, receipts, SOURCE)
        except TransientError as error:
            self.error = error


@pytest.mark.full
@pytest.mark.heavy
@pytest.mark.timeout(900)
def test_rows_stay_exact_while_nessie_cannot_write_its_metadata(
    small: devservers.Nessie, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is full once the manifests are written, and the catalog is asked."""
    store = small.store
    assert isinstance(store, SmallStore)
    catalog = load_catalog("nessie", **small.catalog_properties())
    catalog.create_namespace(NAMESPACE)
    sink = make_sink(small, NAMESPACE)
    session = opened(sink)
    pump(sink, session, 0, 10)
    span = session.begin(span_of(10, 10))
    receipts = stage(sink, session, span)
    with held(monkeypatch, tmp_path, "iceberg.before-commit") as wait:
        failpoints.arm(failpoints.from_environment())
        finishing = Finishing(session, span, receipts)
        wait(finishing)
        failpoints.arm(None)
        store.fill(location(catalog, NAMESPACE))
    finishing.join()
    with pytest.raises(TransientError, match=FULL):
        raise finishing.error or AssertionError("the commit was made")
    stored = sink.peek(TARGET)
    assert stored is not None
    assert stored.positions == {"p0": 10, "p1": 10}
    assert ids(catalog, NAMESPACE) == expected(10)
    with pytest.raises(TransientError, match=FULL):
        opened(sink)
    store.make_room()
    pump(sink, opened(sink), 10, 10)
    assert ids(catalog, NAMESPACE) == expected(20)
