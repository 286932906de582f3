"""One transactional producer: it fences its predecessors, and its one transaction holds all.

Every producer of a task makes ONE transaction and is dropped, so that each transaction has a
producer epoch of its own: a delayed commit, abort or batch of an earlier one meets an older epoch
and is refused (what transaction.version=2 of KIP-890 does for producers that stay).
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer

from dataflow_assets.connectors.kafka.client_errors import ClientErrors
from dataflow_assets.connectors.kafka.cluster import Cluster
from dataflow_assets.connectors.kafka.shared_client import CLIENT
from dataflow_assets.connectors.kafka.values import Outgoing
from dataflow_assets.errors import DataflowError, PermanentError, TransientError

Answer = TypeVar("Answer")


INIT_SECONDS = 30.0
STEP_SECONDS = 3.0  # of one attempt, after which the client's complaints are looked at
COMMIT_SECONDS = 120.0
DELIVERY_MS = 60_000  # after which a record that no broker takes has failed
ABORT_SECONDS = 3.0
BATCH_BYTES = 2 * 1024 * 1024  # handed to the client at once
WAITING = 4  # batches on their way at most: what bounds the memory
SETTINGS: dict[str, Any] = {
    "partitioner": "murmur2_random",  # where Java's producers put the same key
    "linger.ms": 20,
    "batch.num.messages": 100_000,
    "queue.buffering.max.messages": 0,  # bounded here, where the order is kept
    "queue.buffering.max.kbytes": 2**31 - 1,
    "delivery.report.only.error": True,
}
_silent = logging.getLogger(f"{__name__}.client")  # what goes wrong is in our errors
_silent.addHandler(logging.NullHandler())
_silent.propagate = False
_FENCED = {
    KafkaError._FENCED,  # noqa: SLF001 - so the client's own errors are called
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.PRODUCER_FENCED,
}
_ADVICE = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant this client Write and Describe on the topic",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "grant this client Write and Describe on transactional ids that begin with the flow's name"
    ),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "grant this client IdempotentWrite on the cluster",
    KafkaError.INVALID_TRANSACTION_TIMEOUT: (
        "set transactionTimeout to no more than the broker's transaction.max.timeout.ms"
    ),
    KafkaError.UNSUPPORTED_VERSION: "the brokers must support transactions",
    KafkaError.INVALID_RECORD: "the topic's configuration refuses such a record",
    KafkaError.POLICY_VIOLATION: "the broker's policy forbids it",
}


class KafkaRefusals:
    """Keeps why the first record was not delivered: a commit only says that one was not."""

    def __init__(self) -> None:
        self.first: KafkaError | None = None

    def hear(self, error: KafkaError | None, _: Any) -> None:
        self.first = self.first or error


class Fenced(TransientError):
    """Another producer has the transactional id: a newer driver's, or our own next attempt's."""


class KafkaTransaction:
    """A producer that is the only one of its name once it was made, and its transaction."""

    def __init__(self, cluster: Cluster, name: str, settings: Mapping[str, Any]) -> None:
        self._bootstrap, self._name = cluster.bootstrap, name
        self._client_errors, self._refusals = ClientErrors(cluster), KafkaRefusals()
        self._batches: deque[int] = deque(maxlen=WAITING)
        most = int(settings["transaction.timeout.ms"])
        own = {
            "message.timeout.ms": min(DELIVERY_MS, most),
            "transactional.id": name,
            "error_cb": self._client_errors.hear,
            "on_delivery": self._refusals.hear,
        }
        self._live: Producer | None
        every = CLIENT | SETTINGS | dict(settings) | cluster.settings | own
        self._live = Producer(every, logger=_silent)
        try:
            self._again("opening a transaction", self._init, INIT_SECONDS, STEP_SECONDS)
        except BaseException:
            self.close()
            raise

    def begin(self) -> None:
        self._guard("beginning a transaction", self._begin)

    def send(self, record: Outgoing, partition: int = -1) -> None:
        """Sends one record, which may still be on its way when this returns."""
        more: dict[str, Any] = {"headers": list(record.headers)} if record.headers else {}
        if record.timestamp is not None:
            more["timestamp"] = record.timestamp
        self._guard(
            f"writing to {record.topic}",
            lambda: self._producer.produce(
                record.topic, record.value, record.key, partition, **more
            ),
        )

    def send_all(self, topic: str, values: Sequence[Any], keys: Sequence[Any]) -> None:
        """Records without headers to one topic; waits while too many are on their way."""
        self._make_room(len(values))
        records = [{"value": v, "key": k} for v, k in zip(values, keys, strict=True)]
        self._guard(f"writing to {topic}", lambda: self._producer.produce_batch(topic, records))
        for record in records:
            if "_error" in record:
                raise self._meaning(f"writing to {topic}", record["_error"])

    def send_each(self, records: Sequence[Outgoing]) -> None:
        """Sends records with headers, or to several topics."""
        self._make_room(len(records))
        for record in records:
            self.send(record)

    def commit(self) -> None:
        """Commits. After a TransientError it is not known whether it did: the checkpoint tells."""
        self._again("committing to", self._commit, COMMIT_SECONDS, COMMIT_SECONDS)

    def abort(self) -> None:
        """Gives up; a transaction that cannot be ended now is ended by the broker."""
        with suppress(KafkaException):
            self._producer.purge()
            self._producer.abort_transaction(ABORT_SECONDS)

    def close(self) -> None:
        """Frees the connection; safe twice.

        Its own `close` would abort and flush, for up to a minute, and raises SystemError once it
        was fenced. Without it the client ends with the last reference: no other may be kept, also
        not by the frames of an error on its way.
        """
        self._live = None

    # These three are methods, not lambdas or bound methods of the client: what `_again` holds in a
    # frame of an error on its way must not be the client, which would live as long as the error.

    def _init(self, seconds: float) -> None:
        self._producer.init_transactions(seconds)

    def _begin(self) -> None:
        self._producer.begin_transaction()

    def _commit(self, seconds: float) -> None:
        self._producer.commit_transaction(seconds)

    @property
    def _producer(self) -> Producer:
        assert self._live is not None, "a producer that was closed is used again"  # noqa: S101
        return self._live

    def _make_room(self, count: int) -> None:
        """Waits until no more than the last batches are on their way."""
        deadline = time.monotonic() + COMMIT_SECONDS
        while len(self._producer) > sum(self._batches):
            self._producer.poll(0.01)
            self._check()
            if time.monotonic() > deadline:
                silence = f"{self._what('writing')}: nothing moves{self._last_complaint}"
                raise self._client_errors.explain(TransientError(silence))
        self._check()
        self._batches.append(count)

    def _check(self) -> None:
        if self._refusals.first is not None:
            raise self._meaning("writing", self._refusals.first)

    def _again(self, what: str, ask: Callable[[float], Any], seconds: float, step: float) -> None:
        """Asks until it is done; what can be asked again goes on where it was.

        After each step the client is asked whether the cluster refuses it.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                ask(min(step, max(1.0, deadline - time.monotonic())))
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise self._meaning(what, self._refusals.first or error.args[0]) from error
                with suppress(KafkaException):  # a fatal one comes again with the next attempt
                    self._producer.poll(0)
                if (refusal := self._client_errors.refusal()) is not None:
                    raise refusal from error
            else:
                return

    def _guard(self, what: str, ask: Callable[[], Answer]) -> Answer:
        try:
            return ask()
        except KafkaException as error:
            raise self._meaning(what, self._refusals.first or error.args[0]) from error

    def _meaning(self, what: str, error: KafkaError) -> DataflowError:
        sentence = f"{self._what(what)}: {error.str()}"
        if error.code() in _FENCED:
            return Fenced(sentence)
        if error.code() in _ADVICE:
            return PermanentError(f"{sentence}; {_ADVICE[error.code()]}")
        return self._client_errors.explain(TransientError(sentence + self._last_complaint))

    def _what(self, what: str) -> str:
        return f"kafka {self._bootstrap}, transactional id {self._name}: {what}"

    @property
    def _last_complaint(self) -> str:
        return f" ({self._client_errors.last})" if self._client_errors.last else ""
