"""What an error of Kafka's client means for the run, judged by its code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from dataflow_assets.errors import DataflowError, PermanentError, TransientError

MISSING = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID}
"""There is no such topic."""
_SETTLING = MISSING | {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
}
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
    KafkaError.INVALID_GROUP_ID,
    KafkaError._AUTHENTICATION,  # noqa: SLF001 - so are the client's own errors called
    KafkaError._UNSUPPORTED_FEATURE,  # noqa: SLF001
    KafkaError._INVALID_ARG,  # noqa: SLF001
}


def is_of_the_group(error: KafkaError | None) -> bool:
    """Whether it is about the group of a consumer that joins none: it reads all the same."""
    return error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED


def code(error: Exception) -> int | None:
    """The client's code; None where no answer came in time."""
    return error.args[0].code() if isinstance(error, KafkaException) else None


def settles(error: Exception) -> bool:
    """Whether the same question may be answered within seconds: a topic or leader is new."""
    return code(error) in _SETTLING


def translate(error: Exception, what: str, complaint: str) -> DataflowError:
    """The same for the engine. `complaint`: what the client complained of meanwhile, if anything.

    `what`: what was asked, with the brokers and the topic.
    """
    if isinstance(error, KafkaException):
        return meaning(error.args[0], what, complaint)
    return TransientError(_sentence(what, "no answer", complaint))


def meaning(error: KafkaError, what: str, complaint: str = "") -> DataflowError:
    """The same for an error that comes with a message or an answer."""
    sentence = _sentence(what, error.str(), complaint)
    if error.code() in _ADVICE:
        return PermanentError(f"{sentence}; {_ADVICE[error.code()]}")
    return PermanentError(sentence) if error.code() in _PERMANENT else TransientError(sentence)


def _sentence(what: str, reason: str, complaint: str) -> str:
    return f"{what}: {reason}" + (f" ({complaint})" if complaint else "")


@contextmanager
def translated(what: str) -> Iterator[None]:
    """The engine's errors inside with what was tried in front of them."""
    try:
        yield
    except (TransientError, PermanentError) as error:
        raise type(error)(f"{what}: {error}") from error
