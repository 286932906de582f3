"""Slices of many flows in one task: what is wrong with one of them is its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pyarrow as pa
import pytest

from dataflow_assets.contracts import Address, OffsetSlice, Source, SourceSession, Span
from dataflow_assets.contracts.reading import Asked, ReadsMessages
from dataflow_assets.errors import PermanentError
from dataflow_assets.micro_batch.fused import Pass
from dataflow_assets.micro_batch.task_messages import read_together


class Topic(Source, ReadsMessages):
    """One that is read in tasks, where its certificate is on the machine."""

    type: ClassVar[str] = "topic"
    there: bool = True

    def address(self) -> Address:
        return Address("topic", "here", None, "t")

    def open(self, flow: str) -> SourceSession:
        raise NotImplementedError

    @property
    def connection_group(self) -> Any:
        if not self.there:
            raise PermanentError("tls.caFile: /ca.pem: No such file or directory")
        return "cluster"

    @classmethod
    def messages_together(
        cls, asked: Sequence[Asked]
    ) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
        for at, one in enumerate(asked):
            yield at, iter([pa.record_batch({"_at": [one.piece.after]})])


def work(source: Source, after: int) -> Pass:
    target = SimpleNamespace(source_id="id")
    branch = SimpleNamespace(ticket=SimpleNamespace(target=target))
    span = Span((OffsetSlice("0", after, after + 1),))
    made = SimpleNamespace(
        source=source, span=span, branches=(branch,), metadata_to_read=frozenset()
    )
    return cast("Pass", made)


def test_a_certificate_that_is_missing_is_an_error_of_its_own_flow() -> None:
    works = [work(Topic(), 3), work(Topic(there=False), 4), work(Topic(), 5)]
    found: dict[int, Any] = {}
    for n, index, batches in read_together(works, [(n, (0,)) for n in range(3)]):
        assert index == 0
        if n == 1:
            with pytest.raises(PermanentError, match=r"tls\.caFile: /ca\.pem"):
                next(batches)
        else:
            found[n] = [batch.column("_at").to_pylist() for batch in batches]
    assert found == {0: [[3]], 2: [[5]]}
