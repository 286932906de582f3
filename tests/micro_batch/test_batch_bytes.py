"""A micro-batch is bounded in bytes by all that it holds of a message: body, key and headers."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from dataflow_assets.contracts import MESSAGES
from dataflow_assets.micro_batch.batch_bytes import fitting

HEADERS = MESSAGES.field("headers").type


def header(name: str, value: bytes | None) -> dict[str, Any]:
    return {"key": name, "value": value}


def batch(**columns: Any) -> pa.RecordBatch:
    kinds = {"body": pa.binary(), "key": pa.binary(), "headers": HEADERS}
    arrays = {name: pa.array(values, kinds[name]) for name, values in columns.items()}
    return pa.RecordBatch.from_pydict(arrays)


BODIES = batch(body=[b"12345", None, b"", b"123"])
KEYS = batch(body=[b"1"] * 4, key=[b"1234", None, b"", b"12345678"])
PAIRS = [header("ab", b"1234"), header("c", None)]
HEADED = batch(body=[b"1"] * 4, headers=[PAIRS, None, [], [header("", b"x" * 90)]])


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        (BODIES, [5, 5, 5, 8]),
        (KEYS, [5, 6, 7, 16]),
        (HEADED, [8, 9, 10, 101]),
        (HEADED.slice(1, 3), [1, 2, 93]),
    ],
)
def test_each_message_counts_with_all_that_it_holds(
    given: pa.RecordBatch, sizes: list[int]
) -> None:
    for rows, size in enumerate(sizes, 1):
        assert fitting(given.slice(0, rows), 1_000) == (given.slice(0, rows), size)
    assert fitting(given, sizes[-1] - 1)[1] == sizes[-2]
    assert fitting(given, 0) == (given.slice(0, 1), sizes[0])
