"""Values that a table allows, and that files refuse or hide: each record stored, or set aside."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg import types as ice
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, TruncateTransform
from pyspark.sql import SparkSession

from dataflow_assets.connectors.iceberg.table import data_files
from dataflow_assets.connectors.iceberg.table.data_files import ParquetFile
from dataflow_assets.connectors.memory import MemoryOffsetSource, Store
from dataflow_assets.contracts import Limit, Run
from dataflow_assets.errors import Defect
from dataflow_assets.flow import Branch, Flow, Policies
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Patience, Request
from tests.connectors.iceberg.driver import MakeSink, table_rows

PAIR = ice.StructType(
    ice.NestedField(11, "a", ice.LongType(), required=True),
    ice.NestedField(12, "b", ice.StringType(), required=False),
)
VALUE = ice.NestedField(2, "v", PAIR, required=False)
LISTS = ice.NestedField(3, "l", ice.ListType(31, PAIR, element_required=True), required=False)
MAPS = ice.NestedField(
    4, "m", ice.MapType(41, ice.StringType(), 42, PAIR, value_required=True), required=False
)
SCHEMA = Schema(ice.NestedField(1, "id", ice.LongType(), required=True), VALUE, LISTS, MAPS)
UPSERT: dict[str, Any] = {"upsertMode": True, "conflictKey": ["id"]}


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store(f"poison-{uuid.uuid4().hex[:8]}")
    made.create()
    yield made
    made.remove()


class Lake:
    """Messages on their way into the table `orders`."""

    def __init__(self, store: Store, engine: SparkSession, make: MakeSink) -> None:
        self.store, self.engine, self.make = store, engine, make

    def drain(self, *bodies: bytes, batch: int = 1_000, **options: Any) -> None:
        self.store.produce("t", 0, list(bodies))
        source = MemoryOffsetSource(store=self.store.name, topic="t")
        policies = Policies(limit=Limit(records=batch))
        branches = (Branch(self.make(**options)),)
        flow = Flow("default", self.store.name, source, branches, policies, hash="h")
        request = Request(run=Run(), patience=Patience(0, 0.01, 0.05))
        assert list(drain(flow, lambda: self.engine, request))


@pytest.fixture
def lake(store: Store, engine: SparkSession, make: MakeSink) -> Lake:
    return Lake(store, engine, make)


def stored(catalog: Catalog, namespace: str) -> Iterator[dict[str, Any]]:
    """What the files say: PyIceberg reads null lists and maps of structs as empty ones."""
    table = catalog.load_table((namespace, "orders"))
    for task in table.scan().plan_files():
        with table.io.new_input(task.file.file_path).open() as stream:
            yield from pq.read_table(stream).to_pylist()


@pytest.mark.parametrize("options", [{}, UPSERT], ids=["append", "upsert"])
def test_a_null_for_what_has_required_fields(
    lake: Lake, catalog: Catalog, namespace: str, options: dict[str, Any]
) -> None:
    catalog.create_table((namespace, "orders"), SCHEMA)
    full = b'{"id":1,"v":{"a":1},"l":[{"a":2,"b":"x"}],"m":{"k":{"a":3}}}'
    lake.drain(full, b'{"id":2}', b'{"id":3,"v":null,"l":null,"m":null}', **options)
    lake.drain(b'{"id":4,"v":{"b":"x"}}', b'{"id":5}', full.replace(b":1,", b":6,"), **options)
    found = {row["id"]: row for row in stored(catalog, namespace)}
    assert sorted(found) == [1, 2, 3, 5, 6]
    assert found[1]["v"] == found[6]["v"] == {"a": 1, "b": None}
    assert found[1]["l"] == [{"a": 2, "b": "x"}]
    assert found[1]["m"] == [("k", {"a": 3, "b": None})]
    for number in (2, 3, 5):
        assert [found[number][name] for name in "vlm"] == [None] * 3


def test_rows_that_an_update_rewrites_keep_their_nulls(
    lake: Lake, catalog: Catalog, namespace: str
) -> None:
    """They are read from their file, and written into another one."""
    catalog.create_table((namespace, "orders"), SCHEMA)
    lake.drain(b'{"id":1}', b'{"id":2}', b'{"id":3,"l":[],"m":{}}', **UPSERT)
    lake.drain(b'{"id":1,"l":[{"a":1}]}', **UPSERT)
    found = {row["id"]: [row[name] for name in "vlm"] for row in stored(catalog, namespace)}
    assert found == {1: [None, [{"a": 1, "b": None}], None], 2: [None] * 3, 3: [None, [], []]}


def test_the_true_error_is_told_and_nothing_of_the_slice_stays(
    lake: Lake, catalog: Catalog, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ends a file that could not be written does not hide why."""

    def broken(self: ParquetFile, rows: pa.Table) -> None:
        raise pa.ArrowInvalid("Column 'a' is beyond me")

    catalog.create_table((namespace, "orders"), SCHEMA)
    monkeypatch.setattr(ParquetFile, "write", broken)
    with pytest.raises(Defect, match="t, partition 0, offsets 0 to 0: ArrowInvalid: Column 'a' is"):
        lake.drain(b'{"id":1}')
    assert table_rows(catalog, namespace) == []


TEXTS = ["", "x" * 1_000, "\u00fc" * 1_000, "a/b", "..", ".", "a=b", "null", "%2F", " ", "x" * 999]


@pytest.mark.parametrize("transform", [IdentityTransform(), TruncateTransform(1_000)], ids=str)
def test_texts_that_no_path_can_hold_are_partitions(
    lake: Lake, catalog: Catalog, namespace: str, transform: Any
) -> None:
    schema = Schema(
        ice.NestedField(1, "id", ice.LongType()), ice.NestedField(2, "t", ice.StringType())
    )
    spec = PartitionSpec(PartitionField(2, 1_000, transform, "t_p"))
    table = catalog.create_table((namespace, "orders"), schema, partition_spec=spec)
    wanted = dict(enumerate([*TEXTS, None]))
    lake.drain(*(json.dumps({"id": n, "t": text}).encode() for n, text in wanted.items()))
    found = {row["id"]: row["t"] for row in table_rows(catalog, namespace)}
    assert found == wanted
    scan = table.refresh().scan(row_filter="t = ''")
    assert scan.to_arrow()["id"].to_pylist() == [0]
    (task,) = scan.plan_files()
    assert task.file.partition[0] == ""


def test_a_path_of_many_partition_values_is_short_and_their_own() -> None:
    names = "/".join(f"part_{at}={'v' * 90}" for at in range(20))
    assert len(data_files._folder(names)) < 100
    assert data_files._folder("a=1/b=x") == "a=1/b=x"
    assert data_files._folder("a=/b=x").endswith("/b=x")
    assert data_files._folder("a=" + "v" * 500) != data_files._folder("a=" + "v" * 501)
