"""Meanings of the errors of Kafka's client for the run, judged by their codes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException
from confluent_kafka.admin import ListOffsetsResultInfo  # type: ignore[attr-defined]

from dataflow_assets.errors import DataflowError, PermanentError, TransientError

MISSING = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID}
"""There is no such topic."""
_SETTLING = MISSING | {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.NOT_CONTROLLER,
    KafkaError.THROTTLING_QUOTA_EXCEEDED,
}
"""A topic, a leader or a coordinator is new, or the brokers do not agree on that yet, or are busy.
"""
_ADVICE = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: (
        "grant this client Describe on the topic, and Read, Write or Create for what it is to do"
    ),
    KafkaError.GROUP_AUTHORIZATION_FAILED: (
        "grant this client Read on the consumer group, or set startingOffsets"
    ),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: (
        "grant this client on the cluster, or on the topic, what it is to do"
    ),
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "grant this client Write and Describe on transactional ids that begin with the flow's name"
    ),
}
_PERMANENT = {
    *_ADVICE,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.SECURITY_DISABLED,
    KafkaError.INVALID_GROUP_ID,
    KafkaError.INVALID_CONFIG,
    KafkaError.POLICY_VIOLATION,
    KafkaError._AUTHENTICATION,  # noqa: SLF001 - so are the client's own errors called
    KafkaError._UNSUPPORTED_FEATURE,  # noqa: SLF001
    KafkaError._INVALID_ARG,  # noqa: SLF001
}


_SILENT = {
    KafkaError._TIMED_OUT,  # noqa: SLF001
    KafkaError._TIMED_OUT_QUEUE,  # noqa: SLF001
    KafkaError._TRANSPORT,  # noqa: SLF001
    KafkaError._RESOLVE,  # noqa: SLF001
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
}
"""No broker has answered at all."""
_OTHER_PROTOCOL = "Invalid response size"  # the client advises to allow for a gigabyte
_LOOK_AT = {
    _OTHER_PROTOCOL: "check the port under brokers, and whether its listener needs the block tls",
    "SSL": "check whether the listener at this port encrypts",
    "resolve": "check the names under brokers",
    "Connect to": "check hosts and ports under brokers, and whether this machine reaches them",
}
"""By a word of the client's complaint."""
_FRAME = re.compile(r"^(?:\w+://)?\S+?/\S+?: | \(after \d+ms in state \w+.*\)$")
"""Where the client was, and for how long; before and after what it met."""


def is_of_the_group(error: KafkaError | None) -> bool:
    """True for errors about the group of a consumer that joins none: it reads all the same."""
    return error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED


def raise_if_lost(answer: object) -> None:
    """Raises KafkaException where the connection broke while the broker was asked for an offset.

    The client reports that by an offset, and not as an error: taken as a position, the flow would
    begin there.
    """
    if isinstance(answer, ListOffsetsResultInfo) and answer.offset == OFFSET_INVALID:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))  # noqa: SLF001


def code(error: Exception) -> int | None:
    """The client's code; None where no answer came in time."""
    return error.args[0].code() if isinstance(error, KafkaException) else None


def settles(error: Exception) -> bool:
    """Returns whether the same question may be answered within seconds."""
    return code(error) in _SETTLING


def translate(error: Exception, what: str, complaint: str) -> DataflowError:
    """Translates errors into the engine's.

    `complaint`: what the client complained of meanwhile, if anything.

    `what`: what was asked, with the brokers and the topic.
    """
    if isinstance(error, KafkaException):
        return meaning(error.args[0], what, complaint)
    return TransientError(_silence(what, complaint))


def meaning(error: KafkaError, what: str, complaint: str = "") -> DataflowError:
    """Meaning of an error that comes with a message or an answer."""
    if error.code() in _SILENT:
        return TransientError(_silence(what, complaint))
    sentence = f"{what}: {error.str()}" + (f" ({complaint})" if complaint else "")
    if error.code() in _ADVICE:
        return PermanentError(f"{sentence}; {_ADVICE[error.code()]}")
    return PermanentError(sentence) if error.code() in _PERMANENT else TransientError(sentence)


def _silence(what: str, complaint: str) -> str:
    """No broker has answered: what the client met instead, and what a person looks at first."""
    met = _FRAME.sub("", complaint)
    advice = next((say for word, say in _LOOK_AT.items() if word in met), "")
    if _OTHER_PROTOCOL in met:
        met = "what answers there does not speak Kafka's protocol without encryption"
    return f"{what}: no answer" + (f": {met}" if met else "") + (f"; {advice}" if advice else "")


@contextmanager
def prefix_errors(what: str) -> Iterator[None]:
    """The engine's errors inside with what was tried in front of them."""
    try:
        yield
    except (TransientError, PermanentError) as error:
        raise type(error)(f"{what}: {error}") from error
