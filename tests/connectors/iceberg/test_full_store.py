"""A store without room: a micro-batch fails with one sentence, and goes on once there is some."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyspark.sql import SparkSession

from dataflow_assets.contracts import OffsetSlice, Run, Span
from dataflow_assets.errors import TransientError
from tests.connectors.iceberg.driver import (
    SOURCE,
    TARGET,
    expected,
    ids,
    make_sink,
    opened,
    pump,
    span_of,
    stage,
    write,
)
from tests.connectors.iceberg.full_store import FULL, SmallStore, listed, location
from tests.connectors.iceberg.test_upsert import batch, begun, found

pytestmark = pytest.mark.full
NAMESPACE = "small"
COLUMNS = {"id": "long", "name": "string", "n": "int"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SmallStore]:
    """A store of the test's own."""
    with SmallStore(tmp_path) as server:
        yield server


@pytest.fixture
def lake(store: SmallStore) -> Catalog:
    catalog = load_catalog("lake", **store.catalog_properties())
    catalog.create_namespace(NAMESPACE)
    return catalog


def test_rows_stay_exact_while_the_store_is_full(store: SmallStore, lake: Catalog) -> None:
    sink = make_sink(store, NAMESPACE)
    session = opened(sink)
    pump(sink, session, 0, 10)
    span = session.begin(span_of(10, 10))
    receipts = stage(sink, session, span)
    store.fill(location(lake, NAMESPACE))
    with pytest.raises(TransientError, match=FULL):
        session.finish(span, receipts, SOURCE)  # its manifests find no room
    assert store.data_files(location(lake, NAMESPACE)) == listed(lake, NAMESPACE)
    with pytest.raises(TransientError, match=FULL):
        sink.open(TARGET, Run())  # nor that of a new epoch
    with pytest.raises(TransientError, match=FULL):
        stage(sink, session, span)  # nor data files
    assert ids(lake, NAMESPACE) == expected(10)
    stored = sink.peek(TARGET)
    assert stored is not None
    assert stored.positions == {"p0": 10, "p1": 10}
    store.make_room()
    pump(sink, opened(sink), 10, 10)
    assert ids(lake, NAMESPACE) == expected(20)


def test_upserts_stay_exact_while_the_store_is_full(
    store: SmallStore, lake: Catalog, spark: SparkSession
) -> None:
    keyed = {"upsertMode": True, "conflictKey": "id", "columns": COLUMNS}
    sink = make_sink(store, NAMESPACE, **keyed)
    session = begun(sink)
    span = session.begin(Span((OffsetSlice("p0", 0, 2),)))
    rows = [{"id": one, "name": "a", "n": 1} for one in (1, 2)]
    schema = session.table.schema()
    assert schema is not None
    receipts = [write(sink, session, span.slices[0], batch(rows, schema))]
    store.fill(location(lake, NAMESPACE))
    with pytest.raises(TransientError, match=FULL):
        session.stage(span, receipts, lambda: spark)  # the task that rewrites finds no room
    assert found(lake, NAMESPACE) == []
    store.make_room()
    session = begun(sink)
    span = session.begin(Span((OffsetSlice("p0", 0, 2),)))
    receipts = [write(sink, session, span.slices[0], batch(rows, schema))]
    session.stage(span, receipts, lambda: spark)
    session.finish(span, receipts, SOURCE)
    assert found(lake, NAMESPACE) == [(1, "a", 1), (2, "a", 1)]
