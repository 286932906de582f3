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
_PERMANENT = {
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError.INVALID_GROUP_ID,
    KafkaError._AUTHENTICATION,  # noqa: SLF001 - so are the client's own errors called
    KafkaError._UNSUPPORTED_FEATURE,  # noqa: SLF001
    KafkaError._INVALID_ARG,  # noqa: SLF001
}


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
    reason = error.args[0].str() if isinstance(error, KafkaException) else "no answer"
    sentence = f"{what}: {reason}" + (f" ({complaint})" if complaint else "")
    return PermanentError(sentence) if code(error) in _PERMANENT else TransientError(sentence)


@contextmanager
def translated(what: str) -> Iterator[None]:
    """The engine's errors inside with what was tried in front of them."""
    try:
        yield
    except (TransientError, PermanentError) as error:
        raise type(error)(f"{what}: {error}") from error
