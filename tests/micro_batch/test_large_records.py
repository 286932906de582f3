"""Values of large records that a frame has left out are filled in, where the records were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import msgspec
import pyarrow as pa

from dataflow_assets.connectors.memory import MemorySliceSink
from dataflow_assets.contracts import Address, OffsetSlice, Source, SourceSession, Span, local_now
from dataflow_assets.contracts.reading import ReadsLargeRecords
from dataflow_assets.micro_batch.branches import BranchSteps
from dataflow_assets.micro_batch.large_records import DECODED_BYTES, with_large_values
from dataflow_assets.micro_batch.sample import Sampler
from dataflow_assets.records.chain import Transformation
from dataflow_assets.records.step import Context
from dataflow_assets.transforms.filter import Filter

SLICES = (OffsetSlice("a", 0, 9), OffsetSlice("b", 0, 9))


class Topic(Source, ReadsLargeRecords):
    """Answers with a body that names partition and offset."""

    type: ClassVar[str] = "topic"

    def address(self) -> Address:
        return Address("topic", "here", None, "t")

    def open(self, flow: str) -> SourceSession:
        raise NotImplementedError

    def large_records(self, partition: str, offsets: Sequence[int]) -> Iterator[pa.RecordBatch]:
        for offset in offsets:
            body = b'{"kind": "large", "of": "%s", "at": %d}' % (partition.encode(), offset)
            yield pa.record_batch({"body": [body], "_at": [0], "unread": [1]})


def messages(rows: Sequence[tuple[int, bytes | None]]) -> pa.RecordBatch:
    positions, bodies = zip(*rows, strict=True)
    return pa.record_batch(
        {"_at": pa.array(positions, pa.int64()), "body": pa.array(bodies, pa.binary())}
    )


def test_large_records_keep_their_place() -> None:
    left_out = [(-1 - 5, None), (7, b"3"), (-1 - 9, None), (-1 - 11, None), (13, b"6")]
    found = with_large_values([messages(left_out)], Topic(), SLICES)
    rows = [(row["_at"], row["body"]) for batch in found for row in batch.to_pylist()]
    assert rows == [
        (5, b'{"kind": "large", "of": "b", "at": 2}'),
        (7, b"3"),
        (9, b'{"kind": "large", "of": "b", "at": 4}'),
        (11, b'{"kind": "large", "of": "b", "at": 5}'),
        (13, b"6"),
    ]


def test_a_large_batch_is_divided_and_an_empty_one_left_out() -> None:
    batch = messages([(2 * n, b"x" * 100_000) for n in range(300)])
    found = list(with_large_values([batch.slice(0, 0), batch], Topic(), SLICES))
    assert sum(part.num_rows for part in found) == 300
    assert 3 < len(found) < 10
    assert max(part.nbytes for part in found) <= DECODED_BYTES


def test_large_records_count_in_a_sample() -> None:
    """A table that is created by the only record that reaches it."""
    steps = BranchSteps(
        (Transformation(Filter.model_validate({"condition": "$.kind == 'large'"})),),
        Context(local_now()),
        frozenset(),
    )
    sink = MemorySliceSink(store="s", table="t")
    sampler = Sampler(Topic(), Span(SLICES), steps, sink, (None,))
    (output,) = sampler([messages([(1, b'{"kind": "small"}'), (-1 - 3, None)])])
    told = msgspec.msgpack.decode(output.column(0)[0].as_py())
    assert told["records"] == 1
    assert pa.ipc.read_schema(pa.py_buffer(told["schema"])).names == ["kind", "of", "at"]
