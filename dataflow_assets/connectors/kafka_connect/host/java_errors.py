"""Errors of Java as one sentence, and whether trying again can help."""

from __future__ import annotations

from collections.abc import Iterator

import jpype

from dataflow_assets.errors import DataflowError, PermanentError, TransientError

_MOST_CAUSES = 5
_CONFIG = "org.apache.kafka.common.config.ConfigException"
_MISFITS = ("java.lang.LinkageError", "java.lang.ClassNotFoundException")


def connector_error(what: str, error: BaseException) -> DataflowError:
    """Returns what a connector has thrown, as what the run makes of it.

    Called in the host, once for each error that ends it.

    Args:
        what: the connector, or one of its tasks.
        error: of Java, or of Python.

    Returns:
        `error` itself where it is a DataflowError; a PermanentError where the configuration or a
        jar must be changed; else a TransientError.
    """
    if isinstance(error, DataflowError):
        return error
    text = f"{what}: {sentence(error)}"
    if _any_is(error, (_CONFIG,)):
        return PermanentError(text)
    if _any_is(error, _MISFITS):
        return PermanentError(
            f"{text}: a jar of the plugin is missing, or was built for another version; Java here "
            f"is {_java()}, Kafka Connect {_kafka()}"
        )
    return TransientError(text)


def sentence(error: BaseException) -> str:
    """An error with its causes, in one line, for people."""
    if not isinstance(error, jpype.JException):
        return f"{type(error).__name__}: {error}"
    texts = list(dict.fromkeys(str(one.toString()) for one in _chain(error)))
    return " ".join("; the cause: ".join(texts).split())


def _chain(error: BaseException) -> Iterator[jpype.JException]:
    one = error
    for _ in range(_MOST_CAUSES):
        if not isinstance(one, jpype.JException):
            return
        yield one
        one = one.getCause()


def _any_is(error: BaseException, kinds: tuple[str, ...]) -> bool:
    classes = tuple(jpype.JClass(kind) for kind in kinds)
    return any(isinstance(one, classes) for one in _chain(error))


def _java() -> str:
    return str(jpype.JClass("java.lang.System").getProperty("java.version"))


def _kafka() -> str:
    return str(jpype.JClass("org.apache.kafka.common.utils.AppInfoParser").getVersion())
