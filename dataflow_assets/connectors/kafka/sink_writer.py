"""The prefix commit: take the partition's producer, read its token, send what it does not cover.

Rows, rejected records and the token are one transaction. A retry finds the token moved and skips
what it covers; a driver of an older epoch finds another epoch in the head and stops.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from typing_extensions import override

from dataflow_assets import failpoints
from dataflow_assets.connectors.kafka.addressing import Addressing
from dataflow_assets.connectors.kafka.claim import Claim
from dataflow_assets.connectors.kafka.errors import KafkaErrors, outgoing
from dataflow_assets.connectors.kafka.ledger import Ledger
from dataflow_assets.connectors.kafka.producing import BATCH_BYTES, Fenced, Outgoing, Transaction
from dataflow_assets.connectors.kafka.tokens import dump, producer_of
from dataflow_assets.connectors.kafka.topics import Rules
from dataflow_assets.contracts import (
    OFFSET,
    Chunk,
    ErrorRecord,
    OffsetSlice,
    Receipt,
    Rejection,
    Sent,
    Slice,
    Ticket,
    Totals,
    Writer,
)
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.rejecting import error_record, settle

if TYPE_CHECKING:
    from dataflow_assets.connectors.kafka.sink import KafkaSink

_BATCH = 1_000_000  # bytes of a batch of records, where the topic takes as many


class KafkaWriter(Writer):
    """One slice in one transaction, begun with the first chunk."""

    def __init__(self, sink: KafkaSink, ticket: Ticket, piece: Slice) -> None:
        failpoints.arm(ticket.failpoint)
        self._sink, self._ticket, self._piece = sink, ticket, piece
        self._target = ticket.target
        self._ledger = Ledger.of(sink.bootstrap(), ticket.target)
        self._rules = cache(partial(_rules, self._ledger))
        self._addressing = Addressing(sink, self._rules)
        self._producer: Transaction | None = None
        self._claim: Claim | None = None
        self._seen: int | None = None
        self._rejected: list[Rejection] = []
        self._rows = self._size = 0

    @override
    def write(self, chunk: Chunk) -> None:
        with self._guarded():
            producer, claim = self._begun()
            first = claim.first
            if first is None or chunk.seen <= first:
                return
            rows = _from(chunk.rows, first)
            self._rejected += [r for r in chunk.rejected if r.offset >= first]
            self._send(producer, rows, chunk.sent)
            self._size += chunk.size
            self._seen = chunk.seen
        failpoints.reach("kafka.produce")

    @override
    def close(self, complete: bool) -> Receipt:
        offsets = isinstance(self._piece, OffsetSlice)
        with self._guarded():
            if (offsets and self._claim) or (not offsets and complete):
                self._commit()
            elif self._claim:  # a part whose end is in doubt
                self._drop()
            self._release()
        return self._receipt()

    @override
    def abort(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.abort()
            producer.close()

    def _begun(self) -> tuple[Transaction, Claim]:
        if self._producer is None or self._claim is None:
            name = producer_of(self._target, self._piece.partition)
            self._producer = Transaction(self._sink.bootstrap(), name, self._settings())
            self._claim = Claim.read(self._ledger, self._ticket, self._piece)
            self._check_topic(self._claim)
            self._producer.begin()
        return self._producer, self._claim

    def _settings(self) -> dict[str, object]:
        rules = self._rules(self._sink.topic)
        if rules is None:
            raise self._sink.no_topic()
        batch = {"batch.size": min(_BATCH, rules.most_bytes), "message.max.bytes": 1_000_000_000}
        return self._sink.settings() | batch

    def _check_topic(self, claim: Claim) -> None:
        """Rows go into the topic that the checkpoint is about."""
        found = self._ledger.about(self._sink.topic).find()
        if found is None:
            raise PermanentError(
                f"topic {self._sink.topic} was deleted while the flow ran; create it again, or set "
                "autoCreateTopic: true: the next run fills it anew"
            )
        if found.id != claim.stored.head.target:
            raise TransientError(f"topic {self._sink.topic} was made anew while the flow ran")

    def _send(self, producer: Transaction, rows: pa.RecordBatch, sent: Mapping[int, Sent]) -> None:
        if not rows.num_rows:
            return
        few = max(1, rows.num_rows * BATCH_BYTES // max(rows.nbytes, 1))
        for begin in range(0, rows.num_rows, few):
            self._send_few(producer, rows.slice(begin, few), sent)

    def _send_few(
        self, producer: Transaction, rows: pa.RecordBatch, sent: Mapping[int, Sent]
    ) -> None:
        if self._addressing.plain(rows):
            values, keys = (rows.column(name).to_pylist() for name in ("value", "key"))
            producer.send_all(self._sink.topic, values, keys)
            self._rows += rows.num_rows
            return
        found = self._addressing.sort(rows, sent)
        producer.send_each(found.records)
        self._rejected += found.refused
        self._rows += len(found.records)

    def _commit(self) -> None:
        """Everything in one transaction: rows, rejected records, the token."""
        producer, claim = self._begun()
        position = claim.reached(self._seen)
        if position is None:
            self._drop()
            return
        settle(self._target, self._piece, self._rejected, self._beside, self._joined)
        moved = claim.moved(position, self._ticket.epoch, self._counted)
        assert moved.token is not None  # noqa: S101 - it was just made
        key = self._piece.partition.encode()
        producer.send(Outgoing(self._ledger.topic, dump(moved.token), key), claim.slot)
        self._check_topic(claim)  # again: nothing keeps a topic from being made anew
        failpoints.reach("kafka.before-commit")
        producer.commit()
        self._claim = moved
        failpoints.reach("kafka.after-commit")

    @property
    def _counted(self) -> Totals:
        return Totals(self._rows, len(self._rejected), self._size)

    def _beside(self, found: Sequence[Rejection]) -> None:
        """Into the topic of rejected records."""
        records = [error_record(self._target, self._piece, one) for one in found]
        self._send_errors(self._sink.rejected_topic, records)

    def _joined(self, records: Sequence[ErrorRecord]) -> bool:
        """Into an error sink of the same cluster, with the rows."""
        sink = self._target.rejects.sink
        errors = sink.error_store() if sink else None
        if not isinstance(errors, KafkaErrors) or errors.bootstrap != self._sink.bootstrap():
            return False
        self._send_errors(errors.topic, records)
        return True

    def _send_errors(self, topic: str, records: Sequence[ErrorRecord]) -> None:
        producer, _ = self._begun()
        rules = self._rules(topic)
        producer.send_each([outgoing(topic, one, rules) for one in records])

    def _drop(self) -> None:
        self.abort()
        self._rejected, self._rows, self._size = [], 0, 0

    def _release(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    def _receipt(self) -> Receipt:
        claim = self._claim
        token = claim.token if claim else None
        staged = (dump(token).decode(),) if token else ()
        position = claim.position if claim else None
        branch = self._target.branch
        return Receipt(branch, self._piece.partition, position, self._counted, staged)

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """Any error ends the producer, and with it the transaction."""
        try:
            yield
        except Fenced:
            self.abort()
            self._ledger.owned(self._ticket.epoch)  # says who has taken the flow over
            raise
        except BaseException:
            self.abort()
            raise


def _from(rows: pa.RecordBatch, first: int) -> pa.RecordBatch:
    offsets = rows.column(OFFSET).to_numpy()
    covered = int(np.searchsorted(offsets, first))
    return rows.slice(covered) if covered else rows


def _rules(ledger: Ledger, topic: str) -> Rules | None:
    shelf = ledger.about(topic)
    return shelf.rules() if shelf.find() is not None else None
