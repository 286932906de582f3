"""The prefix commit: take the partition's producer, read its checkpoint, send what is not covered.

Rows, rejected records and the checkpoint are one transaction. A retry finds the checkpoint moved
and skips what it covers; a driver of an older epoch finds another epoch in the head and stops.

Why no interleaving loses or doubles a record, by whoever might come too late:

- A task of an older driver, or a second attempt of Spark's. Every task first takes the producer of
  its source partition (`init_transactions`: predecessors are fenced, their open transactions are
  aborted, decided ones are ended), and only then reads head and checkpoint up to the end of the
  log. So it sees every commit that ever will be, and none comes after it but its own successors'.
  It stops when the head has another epoch, or an intent without its part.
- It read the head just before a new driver took the epoch. Then its commit is one before that
  driver's own tasks, which find its checkpoint and skip what it covers. Positions that the new
  driver has read before are only too low.
- The new driver restarts, empties or forgets the branch. Those three take the producers of all
  slots first, under the new epoch: nothing that was begun before can be committed any more.
- Two drivers. The younger one's `init_transactions` fences the elder, which can write no head.
- A crash between produce and commit: the broker aborts the transaction, at the latest when the
  next task or driver takes its producer. An unknown outcome of a commit is a TransientError: the
  next attempt takes the producer, which ends the transaction one way or the other, and the
  checkpoint tells which.
- A commit that was answered may not be visible for a moment: readers here wait for the end of the
  log, not for the last stable offset.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

import pyarrow as pa
from typing_extensions import override

from dataflow_assets import failpoints
from dataflow_assets.connectors.kafka.client import PATIENCE
from dataflow_assets.connectors.kafka.create_topic import HiddenTopic, KafkaRules
from dataflow_assets.connectors.kafka.options import KafkaSinkOptions
from dataflow_assets.connectors.kafka.producer import BATCH_BYTES, Fenced, KafkaTransaction
from dataflow_assets.connectors.kafka.rejected.error_sink import KafkaErrors, outgoing
from dataflow_assets.connectors.kafka.sink.checkpoint import CheckpointTopic
from dataflow_assets.connectors.kafka.sink.checkpoint_records import (
    KafkaStored,
    PartitionCheckpoint,
    dump,
    producer_of,
)
from dataflow_assets.connectors.kafka.sink.routing import Routing, RulesOf
from dataflow_assets.connectors.kafka.values import Outgoing
from dataflow_assets.contracts import (
    Chunk,
    ErrorRecord,
    Rejection,
    Sent,
    Slice,
    Ticket,
    Totals,
    utc_now,
)
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.sdk.record_ids import REPLAY
from dataflow_assets.sdk.rejected_records import error_record, settle
from dataflow_assets.sdk.sink.decide import check_planned, check_recorded
from dataflow_assets.sdk.sink.slice_commit import SliceCommit, SliceStore

_BATCH = 1_000_000  # bytes of a batch of records, where the topic takes as many


class KafkaSliceStore(SliceStore):
    """One slice in one transaction of one producer, that of its source partition."""

    def __init__(self, sink: KafkaSinkOptions, ticket: Ticket, piece: Slice) -> None:
        self._sink, self._ticket, self._piece = sink, ticket, piece
        self._target, self._cluster = ticket.target, sink.cluster()
        self._side_topic = CheckpointTopic.of(self._cluster, ticket.target)
        self._rules = cache(partial(_rules, self._side_topic, sink.topic))
        self._routing = self._make_routing(ticket)
        self._producer: KafkaTransaction | None = None
        self._stored: KafkaStored

    def _make_routing(self, ticket: Ticket) -> Routing:
        replays = self._target.branch.endswith(REPLAY)
        rules = cache(partial(_rules_of_record, self._rules, self._sink.topic))
        return Routing(self._sink, rules, ticket.schema, replays=replays)

    @override
    def begin(self) -> SliceCommit | None:
        name = producer_of(self._target, self._piece.partition)
        self._producer = KafkaTransaction(self._cluster, name, self._settings())
        name = self._piece.partition
        self._stored = self._read()
        position, checkpoint = self._stored.position(name), self._stored.current.get(name)
        check_planned(self._target.flow, self._piece, position)
        self._check_topic()
        self._producer.begin()
        if position is None:
            return None
        return SliceCommit(position, staged=(dump(checkpoint).decode(),) if checkpoint else ())

    def _read(self) -> KafkaStored:
        """Reads what is stored of the partition, whose producer is taken: later ones are fenced.

        Raises TakenOver under another epoch, or where the part is not recorded any more.
        """
        head, name = self._side_topic.owned_head(self._ticket.epoch), self._piece.partition
        check_recorded(self._target.flow, self._piece, head.parts)
        checkpoint = self._side_topic.checkpoint(head.slots[name]) if name in head.slots else None
        return KafkaStored(head, {} if checkpoint is None else {name: checkpoint})

    @override
    def add(self, chunk: Chunk) -> Sequence[Rejection]:
        rows = chunk.rows
        few = max(1, rows.num_rows * BATCH_BYTES // max(rows.nbytes, 1))
        begins = range(0, rows.num_rows, few)
        found = [one for begin in begins for one in self._send(rows.slice(begin, few), chunk.sent)]
        failpoints.reach("kafka.produce")
        return found

    @override
    def commit(self, commit: SliceCommit) -> SliceCommit:
        stored, producer, name = self._stored, self._producing(), self._piece.partition
        head, old = stored.head, stored.current.get(name)
        settle(self._target, self._piece, commit.rejected, self._beside, self._commits_with_errors)
        counted = commit.totals + (old.totals if old else Totals())
        reached = (head.generation, commit.position, head.serial, self._ticket.epoch)
        checkpoint = dump(PartitionCheckpoint(*reached, counted, utc_now()))
        side_record = Outgoing(self._side_topic.topic, checkpoint, name.encode())
        producer.send(side_record, head.slots[name])
        self._check_topic()  # again: nothing keeps a topic from being made anew
        failpoints.reach("kafka.before-commit")
        producer.commit()
        producer.close()
        self._producer = None
        failpoints.reach("kafka.after-commit")
        return replace(commit, staged=(checkpoint.decode(),))

    @override
    def end(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.abort()
            producer.close()

    def _producing(self) -> KafkaTransaction:
        assert self._producer is not None, "a writer that ended is used again"  # noqa: S101
        return self._producer

    def _settings(self) -> dict[str, object]:
        rules = self._rules(self._sink.topic)
        if rules is None:
            raise self._sink.no_topic()
        batch = {"batch.size": min(_BATCH, rules.most_bytes), "message.max.bytes": 1_000_000_000}
        return self._sink.producer_settings() | batch

    def _check_topic(self) -> None:
        """Rows go into the topic that the checkpoint is about."""
        found = self._side_topic.about(self._sink.topic).find(PATIENCE)
        if found is None:
            raise PermanentError(
                f"topic {self._sink.topic} was deleted while the flow ran; create it again, or set "
                "autoCreateTopic: true: the next run fills it from the start"
            )
        if found.id != self._stored.head.target:
            raise TransientError(f"topic {self._sink.topic} was recreated while the flow ran")

    def _send(self, rows: pa.RecordBatch, sent: Mapping[int, Sent]) -> Sequence[Rejection]:
        producer = self._producing()
        if self._routing.plain(rows):
            values, keys = (rows.column(name).to_pylist() for name in ("value", "key"))
            producer.send_all(self._sink.topic, values, keys)
            return ()
        found = self._routing.sort(rows, sent)
        producer.send_each(found.records)
        return found.refused

    def _beside(self, found: Sequence[Rejection]) -> None:
        records = [error_record(self._target, self._piece, one) for one in found]
        self._send_errors(self._sink.rejected_topic, records)

    def _commits_with_errors(self, records: Sequence[ErrorRecord]) -> bool:
        """Into an error sink of the same cluster, with the rows."""
        sink = self._target.rejects.sink
        errors = sink.error_store() if sink else None
        if not isinstance(errors, KafkaErrors) or errors.cluster != self._cluster:
            return False
        self._send_errors(errors.topic, records)
        return True

    def _send_errors(self, topic: str, records: Sequence[ErrorRecord]) -> None:
        rules = self._rules(topic)
        self._producing().send_each([outgoing(topic, one, rules) for one in records])

    @override
    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        try:
            yield
        except Fenced:
            self.end()
            self._side_topic.owned_head(self._ticket.epoch)  # says who has taken the flow over
            raise


def _rules_of_record(rules: RulesOf, own: str, topic: str) -> KafkaRules | None:
    """A topic that a record alone names, and that this client may not see, counts as missing."""
    try:
        return rules(topic)
    except HiddenTopic:
        if topic == own:
            raise
        return None


def _rules(side_topic: CheckpointTopic, own: str, topic: str) -> KafkaRules | None:
    admin = side_topic.about(topic)
    there = admin.find(PATIENCE if topic == own else 0.0)  # the driver has seen its own
    return admin.rules() if there is not None else None
