"""An error of ours on its way from a task to the driver.

It travels as a value and not as a failed task: Spark would repeat what cannot succeed, and the
class would be lost. The driver meets the class that was raised, or the nearest ancestor it knows:
a connector's own kind of TransientError is retried as any other.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dataflow_assets.errors import DataflowError, PermanentError, Stopped, TakenOver, TransientError

_GRAVEST: tuple[type[DataflowError], ...] = (TakenOver, PermanentError, TransientError)


@dataclass(frozen=True)
class TaskFailure:
    """The error without its traceback. Constructors differ, so none is called again."""

    kinds: tuple[str, ...]
    """Its class and its ancestors, the nearest first."""
    message: str
    attributes: bytes

    @classmethod
    def of(cls, error: DataflowError) -> TaskFailure:
        ours = [kind for kind in type(error).__mro__ if issubclass(kind, DataflowError)]
        return cls(tuple(map(_name, ours)), str(error), pickle.dumps(vars(error)))

    def error(self) -> DataflowError:
        kinds = {_name(kind): kind for kind in _family(DataflowError)}
        kind = next(kinds[name] for name in self.kinds if name in kinds)
        error = kind.__new__(kind, self.message)
        vars(error).update(pickle.loads(self.attributes))  # noqa: S301 - from a task of our own
        return error


def raise_gravest(failures: Sequence[TaskFailure]) -> None:
    """Raises one of these errors, if there are any: the one that rules out what others allow."""
    for error in sorted((failure.error() for failure in failures), key=_rank):
        raise error


def _rank(error: DataflowError) -> int:
    """One record that stops the flow comes last: the others may have come before it."""
    kinds = [] if isinstance(error, Stopped) else [isinstance(error, kind) for kind in _GRAVEST]
    return kinds.index(True) if any(kinds) else len(_GRAVEST)


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _family(kind: type[DataflowError]) -> Iterator[type[DataflowError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _family(child)
