"""The Iceberg source: messages of raw tables, checkpoints of the original, what goes wrong."""

from __future__ import annotations

import json
import re
import uuid
from contextlib import closing
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyiceberg.typedef import Record

from dataflow_assets.connectors.iceberg import IcebergSource
from dataflow_assets.connectors.iceberg.raw_messages import message_form
from dataflow_assets.connectors.iceberg.source.session import IcebergSourceSession
from dataflow_assets.contracts import (
    EVERYTHING,
    Limit,
    Note,
    PartSlice,
    Positions,
    system_name,
)
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.micro_batch.message_metadata import MetadataRows, as_messages
from devservers import SeaweedFS
from tests.connectors.iceberg.source_driver import (
    MakeSource,
    ids,
    make_source,
    make_table,
    parts,
    read,
    rows,
    spans,
    stands,
)

JSON = {Note.KIND: b"json"}


@pytest.fixture
def make(seaweedfs: SeaweedFS, namespace: str) -> MakeSource:
    return partial(make_source, seaweedfs, namespace)


def messages(source: IcebergSource, batch: pa.RecordBatch) -> list[tuple[Any, dict[str, Any]]]:
    """Body and metadata of each row, as steps see them."""
    piece = PartSlice("part-0", None, "x")
    reader = MetadataRows(source, piece, 1, frozenset({EVERYTHING}))
    return [
        (json.loads(body or b""), dict(metadata))
        for message in as_messages([source.message_form(batch)], 0, 1)
        for body, metadata in reader.records(message)
    ]


def test_rows_are_objects_with_their_snapshot(
    make: MakeSource, catalog: Catalog, namespace: str
) -> None:
    make_table(catalog, namespace).append(rows(0, 1))
    source = make(incrementalBySnapshot=True)
    ((span, after),) = spans(source)
    (batch,) = source.batches(span.slices[0], source.metadata_columns)
    snapshot = stands(after).snapshot
    assert messages(source, batch) == [
        (
            {"id": 0, "name": "n0"},
            {
                "namespace": namespace,
                "table": "events",
                "snapshot_id": snapshot,
                "snapshot_sequence": 1,
            },
        )
    ]


def test_raw_tables_are_texts(make: MakeSource) -> None:
    fields = [pa.field(name, pa.string(), metadata=JSON) for name in ("data", "_metadata")]
    batch = pa.RecordBatch.from_arrays([['{"a":1}'], ['{"k":"v"}']], schema=pa.schema(fields))
    ((body, _),) = messages(make(), batch)
    assert body == {"data": '{"a":1}', "_metadata": '{"k":"v"}'}


def test_flattened_tables_are_wrapped_bodies(make: MakeSource, namespace: str) -> None:
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(['{"a": 1.50}', "no json", None]),
            pa.array(["orders", "orders", None]),
            pa.array([7, 8, None], pa.int64()),
        ],
        names=["data", "kafka_topic", "kafka_partition_id"],
    )
    (first, told), (second, _), (third, empty) = messages(make(), batch)
    whole = {"topic": "orders", "partition_id": 7}
    assert first == {"value": {"a": 1.5}, "_metadata": whole}
    assert told == {"namespace": namespace, "table": "events", **whole}
    assert second["value"] == "no json"
    assert third == {"value": None, "_metadata": {"topic": None, "partition_id": None}}
    assert empty["topic"] is None


@pytest.mark.parametrize(
    "names",
    [["data"], ["data", "_metadata", "more"], ["id", "name"]],
    ids=["data alone", "three columns", "no data"],
)
def test_other_tables_are_as_they_are(names: list[str]) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(["1"]) for _ in names], names=names)
    assert message_form(batch) is batch


def test_what_columns_share_ends_with_an_underscore() -> None:
    names = ["data", "kafka_topic", "kafka_to", "kafka_"]
    batch = pa.RecordBatch.from_arrays([pa.array(["1"]) for _ in names], names=names)
    fields = message_form(batch).schema.field("_metadata").type
    assert [field.name for field in fields] == ["topic", "to", "kafka_"]


def test_data_that_is_no_text_is_a_column() -> None:
    batch = pa.RecordBatch.from_pydict({"data": [1], "other": ["x"]})
    assert message_form(batch) is batch
    marked = pa.field(system_name("k"), pa.int64(), metadata={Note.METADATA: b"k"})
    alone = batch.drop_columns(["other"]).append_column(marked, pa.array([1]))
    assert message_form(alone) is alone


def adopted(source: IcebergSource, document: dict[str, Any]) -> Positions:
    with closing(source.open("f")) as session:
        assert isinstance(session, IcebergSourceSession)
        return session.adopt(document)


def test_a_checkpoint_of_the_original(
    make: MakeSource, catalog: Catalog, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = make_table(catalog, namespace)
    for number in range(3):
        table.append(rows(number, number + 1))
    first, second, _ = (str(one.snapshot_id) for one in table.snapshots())
    document = {"lastAckedSnapshotID": first, "lastAckedSnapshotSequence": 1, "table": "events"}
    assert ids(read(make(), adopted(make(), document))[0]) == [1, 2]
    assert not caplog.records
    inside = document | {"scanSnapshotID": second, "scanRowOffset": 1}
    assert ids(read(make(), adopted(make(), inside))[0]) == [1, 2]
    acked_inside = inside | {"lastAckedSnapshotID": second}
    assert ids(read(make(), adopted(make(), acked_inside))[0]) == [1, 2]
    assert f"in the middle of snapshot {second}: it is read again, so up to 1 of" in caplog.text
    new = {"scanSnapshotID": first, "scanRowOffset": 1}
    assert ids(read(make(), adopted(make(), new))[0]) == [0, 1, 2]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "no lastAckedSnapshotID: give the object `iceberg`"),
        ({"lastAckedSnapshotID": "x"}, "lastAckedSnapshotID of the checkpoint must be the digits"),
        ({"lastAckedSnapshotID": "7"}, "snapshot 7 is not in the table's history: it has no"),
    ],
)
def test_a_checkpoint_that_is_none(
    make: MakeSource, catalog: Catalog, namespace: str, document: dict[str, Any], message: str
) -> None:
    make_table(catalog, namespace)
    with pytest.raises(PermanentError, match=message):
        adopted(make(), document)


def test_a_file_that_is_gone(make: MakeSource, catalog: Catalog, namespace: str) -> None:
    table = make_table(catalog, namespace)
    table.append(rows(0, 3))
    ((span, after),) = spans(make())
    (path,) = table.inspect.files()["file_path"].to_pylist()
    table.io.delete(path)
    with pytest.raises(PermanentError) as caught:
        parts(make(), span)
    assert f"is gone, a file of snapshot {stands(after).snapshot}: the snapshot was expired" in (
        str(caught.value)
    )
    assert path.rpartition("/")[2] in str(caught.value)


def test_a_table_made_anew_between_plan_and_read(
    make: MakeSource, catalog: Catalog, namespace: str
) -> None:
    make_table(catalog, namespace).append(rows(0, 3))
    ((span, after),) = spans(make())
    session = make().open("f")
    catalog.drop_table((namespace, "events"))
    with pytest.raises(PermanentError, match=r"table \S+\.events was dropped while it was read"):
        parts(make(), span)
    make_table(catalog, namespace).append(rows(0, 3))
    with pytest.raises(TransientError, match=r"events was dropped and recreated while it was read"):
        parts(make(), span)
    with pytest.raises(TransientError, match=r"events was dropped and recreated while it was read"):
        session.plan(after, Limit())
    session.close()


def test_no_table(make: MakeSource) -> None:
    with pytest.raises(PermanentError, match=r"events does not exist at \S+: nothing can be read"):
        make().open("f")


def test_a_store_that_refuses_the_keys(make: MakeSource, catalog: Catalog, namespace: str) -> None:
    make_table(catalog, namespace).append(rows(0, 3))
    with pytest.raises(PermanentError, match="check the credentials and what they may do"):
        read(make(secretAccessKey="planted"))


class DeleteManifest(ManifestWriterV2):
    """PyIceberg writes no manifests of delete files."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def delete_by_equality(table: Table) -> str:
    """A snapshot that adds a file with equality deletes; nobody reads the file."""
    path = f"{table.location()}/data/{uuid.uuid4()}.parquet"
    file = DataFile.from_args(
        content=DataFileContent.EQUALITY_DELETES,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=100,
        spec_id=0,
        equality_ids=[1],
    )
    number, folder = table.metadata.new_snapshot_id(), f"{table.location()}/metadata"
    output = table.io.new_output(f"{folder}/{uuid.uuid4()}-m0.avro")
    with DeleteManifest(table.spec(), table.schema(), output, number, "deflate") as writer:
        entry = ManifestEntry.from_args(
            status=ManifestEntryStatus.ADDED, snapshot_id=number, data_file=file
        )
        writer.add_entry(entry)
    head = table.current_snapshot()
    assert head is not None
    known = [*head.manifests(table.io), writer.to_manifest_file()]
    sequence = table.metadata.next_sequence_number()
    output = table.io.new_output(f"{folder}/snap-{number}-{uuid.uuid4()}.avro")
    with write_manifest_list(2, output, number, head.snapshot_id, sequence, "deflate") as lister:
        lister.add_manifests(known)
    summary = {"added-delete-files": "1", "total-records": "3"}
    snapshot = {
        "snapshot-id": number,
        "parent-snapshot-id": head.snapshot_id,
        "sequence-number": sequence,
        "manifest-list": output.location,
        "summary": Summary(Operation.DELETE, **summary),
        "schema-id": table.schema().schema_id,
    }
    moved = {"ref-name": "main", "type": "branch", "snapshot-id": number}
    updates = (
        AddSnapshotUpdate(snapshot=Snapshot.model_validate(snapshot)),
        SetSnapshotRefUpdate.model_validate(moved),
    )
    table.catalog.commit_table(table, (), updates)
    return path


def test_equality_deletes_are_refused_where_they_would_have_to_be_applied(
    make: MakeSource, catalog: Catalog, namespace: str
) -> None:
    table = make_table(catalog, namespace)
    table.append(rows(0, 3))
    _, end = read(make())
    path = delete_by_equality(table)
    told = rf"table \S+\.events has equality deletes \({re.escape(path)}\), which cannot be applied"
    with pytest.raises(PermanentError, match=told):
        read(make())
    with pytest.raises(PermanentError, match=r"\(delete\) took away or replaced 0 rows in 1 files"):
        read(make(), end)
    table.refresh().append(rows(3, 5))
    assert ids(read(make(onSourceRewrite="ignore"), end)[0]) == [3, 4]
