"""Keys that are no text: what is kept of them with a rejected record, and what a replay reads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pyarrow as pa

from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.contracts import OffsetSlice
from dataflow_assets.formats.avro import AvroFormat
from dataflow_assets.formats.json import JsonDecoder, Tombstones
from dataflow_assets.micro_batch.branches import PassBranch
from dataflow_assets.micro_batch.formatted import Formatted, in_json
from dataflow_assets.micro_batch.message_metadata import MetadataRows
from dataflow_assets.micro_batch.originals import OriginalMessages
from dataflow_assets.micro_batch.places import Places

SENT = b"\0\0\0\0\x01\x0e"


def batch(body: bytes, key: bytes) -> pa.RecordBatch:
    columns = {
        "_at": pa.array([7], pa.int64()),
        "body": pa.array([body], pa.binary()),
        "key": pa.array([key], pa.binary()),
    }
    return pa.record_batch(columns)


def test_a_message_is_found_again_with_the_text_of_its_key_and_the_body_that_was_sent() -> None:
    source = KafkaSource.model_validate({"brokers": ["h:1"], "topic": "t"})
    piece = OffsetSlice("0", 7, 8)
    rows = MetadataRows(source, piece, 1, frozenset({"key"}))
    sent, named = batch(b"avro", SENT), batch(b"{}", b"7")
    numbers = pa.array([7], pa.int64())
    found = OriginalMessages(numbers, sent, rows, {}, named, places=Places(piece))[7]
    assert found.body == b"avro"
    assert found.metadata is not None
    assert found.metadata["key"] == "7"


def test_the_key_of_an_entry_is_not_decoded_again_where_its_text_is_kept() -> None:
    form = AvroFormat(schema='"long"', keys_named=True)
    entry = batch(b"\x0e", b'{"id":7}').append_column(
        "metadata", pa.array([b'{"key":"{\\"id\\":7}"}'], pa.binary())
    )
    as_json, refused = in_json(entry, form)
    assert not refused
    assert as_json.column("body").to_pylist() == [b"7"]
    assert in_json(entry.drop_columns(["metadata"]), form)[1]


def test_keys_that_nobody_reads_are_not_decoded() -> None:
    """A sink that gets them as they were sent does not care what they are."""
    form = AvroFormat(schema='"long"', keys_named=True)
    as_json, refused = in_json(batch(b"\x0e", b"no Avro"), form, keys=False)
    assert not refused
    assert as_json.column("key").to_pylist() == [b"no Avro"]


def test_null_messages_that_are_skipped_are_so_whatever_their_keys_are() -> None:
    schema = pa.schema([("id", pa.int64())])
    ticket = SimpleNamespace(schema=schema)
    known = SimpleNamespace(ticket=ticket, unknown_fields="reject", unwraps=False)
    branch = cast("PassBranch", known)
    decoder = JsonDecoder(schema, "reject", Tombstones("skip"))
    formatted = Formatted(AvroFormat(schema='"long"', keys_named=True), branch, decoder)
    null = batch(b"", b"no Avro")
    null = null.set_column(1, "body", pa.nulls(1, pa.binary()))
    numbers = pa.array([7], pa.int64())
    chunk = formatted(null, OriginalMessages(numbers, null, places=Places(OffsetSlice("0", 7, 8))))
    assert (chunk.rows.num_rows, chunk.rejected, chunk.seen) == (0, [], 8)
