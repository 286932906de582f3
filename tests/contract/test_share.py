"""What is stored when a partition has too many rejected records."""

from __future__ import annotations

import pytest

from dataflow_assets.errors import PermanentError
from tests.contract.conftest import Case, numbered
from tests.contract.drivers import MemoryOffsets, encode


@pytest.mark.parametrize("sink", ["memory-slice", "memory-span"], indirect=True)
def test_the_sentence_about_what_is_stored_is_true_of_the_other_partitions_too(
    sink_case: Case,
) -> None:
    source = sink_case.source
    assert isinstance(source, MemoryOffsets)
    source.store.produce("t", 0, [b"{}"] * 1_200)
    source.store.produce("t", 1, [encode(row) for row in numbered(1, 10)])
    with pytest.raises(PermanentError) as caught:
        sink_case.drain()
    assert (
        "Nothing of this micro-batch's records of partition 0 is stored; those of other partitions "
        "may be" in str(caught.value)
    )
    assert sink_case.sink.rejected() == []
    if sink_case.sink.type == "memory-slice":
        sink_case.expect(numbered(1, 10))
    else:
        sink_case.expect([])
