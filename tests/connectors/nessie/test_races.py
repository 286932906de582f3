"""Many writers of one table behind Nessie, which does not assert that there is no snapshot yet."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from dataclasses import replace

import pytest
from pyiceberg.catalog import Catalog

import devservers
from dataflow_assets.connectors.iceberg import NessieSink
from dataflow_assets.contracts import Run
from dataflow_assets.errors import PermanentError, TransientError
from tests.connectors.iceberg.driver import SAMPLE, TARGET, expected, ids, opened, pump
from tests.connectors.iceberg.test_races import FENCED, race
from tests.connectors.nessie.driver import Trees, make_sink

MANY = pytest.param(20, 12, marks=[pytest.mark.full, pytest.mark.timeout(1800)])
"""240 commits of 240."""
FEW = pytest.param(4, 2, marks=pytest.mark.heavy)


@pytest.mark.parametrize(("writers", "commits"), [MANY])
def test_flows_into_one_table_that_one_of_them_makes(
    writers: int,
    commits: int,
    nessie: devservers.Nessie,
    nessie_catalog: Catalog,
    nessie_namespace: str,
) -> None:
    """From the very first commit on."""
    sink = make_sink(nessie, nessie_namespace)
    flows = [_flow(sink, number, commits) for number in range(writers)]
    assert race(*flows) == [None] * writers
    found = ids(nessie_catalog, nessie_namespace)
    assert found == sorted(expected(commits) * writers)


@pytest.mark.parametrize(("writers", "commits"), [FEW, MANY])
def test_flows_into_a_table_that_has_no_snapshot(
    writers: int,
    commits: int,
    nessie: devservers.Nessie,
    nessie_catalog: Catalog,
    nessie_namespace: str,
) -> None:
    """Somebody else has made it: the first snapshot is an empty one, whoever adds it."""
    nessie_catalog.create_table((nessie_namespace, "orders"), SAMPLE)
    sink = make_sink(nessie, nessie_namespace)
    flows = [_flow(sink, number, commits) for number in range(writers)]
    assert race(*flows) == [None] * writers
    found = ids(nessie_catalog, nessie_namespace)
    assert found == sorted(expected(commits) * writers)


def _flow(sink: NessieSink, number: int, commits: int) -> Callable[[], None]:
    """A flow of its own, which commits one row of each of two partitions at a time."""
    target = replace(TARGET, flow=f"default/flow-{number}")

    def drive() -> None:
        done = 0
        while done < commits:
            try:
                session = opened(sink, target)
                done = int(session.checkpoint.positions["p0"])
                while done < commits:
                    pump(sink, session, done, 1)
                    done += 1
            except TransientError:
                continue  # too many others were quicker: the checkpoint tells what was stored

    return drive


@pytest.mark.full
def test_of_two_drivers_on_one_span_one_wins(
    nessie: devservers.Nessie, nessie_catalog: Catalog, nessie_namespace: str
) -> None:
    sink = make_sink(nessie, nessie_namespace)
    lock, won = threading.Lock(), 0

    def drive() -> None:
        nonlocal won
        for _ in range(6):
            try:
                session = opened(sink)
                first = int(session.checkpoint.positions["p0"])
                pump(sink, session, first, 2)
            except FENCED:
                continue
            with lock:
                won += 1

    assert race(drive, drive, drive) == [None] * 3
    stored = sink.peek(TARGET)
    assert stored is not None
    last = int(stored.positions["p0"])
    found = ids(nessie_catalog, nessie_namespace)
    assert found == expected(last)
    assert last >= 2 * won > 0


@pytest.mark.heavy
def test_a_table_that_is_made_has_a_first_snapshot(
    nessie: devservers.Nessie, nessie_catalog: Catalog, nessie_namespace: str
) -> None:
    session = make_sink(nessie, nessie_namespace).open(TARGET, Run())
    session.restart({"p0": 0}, "topic-1")
    session.table.create(SAMPLE)
    table = nessie_catalog.load_table((nessie_namespace, "orders"))
    assert table.current_snapshot() is not None
    assert table.scan().to_arrow().num_rows == 0


@pytest.mark.heavy
@pytest.mark.parametrize("made", [True, False])
def test_a_tag_is_not_written_to(
    nessie: devservers.Nessie, nessie_catalog: Catalog, nessie_namespace: str, *, made: bool
) -> None:
    """Whether the table is there or would be made: the run ends, and the error says why."""
    if made:
        nessie_catalog.create_table((nessie_namespace, "orders"), SAMPLE)
    tag = f"t_{uuid.uuid4().hex[:8]}"
    Trees(nessie).make(tag, "TAG")
    said = rf"{nessie_namespace}\.orders at .* a branch.*; a tag cannot be written to: set branch"
    with pytest.raises(PermanentError, match=said):
        opened(make_sink(nessie, nessie_namespace, branch=tag))
