"""An error of a server's driver in one shape, and what it becomes for the engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from dataflow_assets.errors import DataflowError


class Fault(Enum):
    """Whose fault a failure is, as far as its code tells."""

    ROW = "a row's: the others are stored without it"
    LIKELY = "a row's, unless several are refused and none is stored"
    OPEN = "a row's, if others are stored without it; else the target's"
    OUTSIDE = "no row's: the network's, the server's, another writer's"


class ServerFailure(ABC, Exception):
    """One error of a driver. Connectors derive their own; it never leaves the connector."""

    @property
    def reason(self) -> str:
        """Returns what is wrong, in the server's words.

        Called inside tasks, for the rejection of a row.

        Returns:
            A clause without advice.
        """
        return str(self)

    @property
    def error_type(self) -> str:
        """The DataFlow Operator's error class.

        Called inside tasks, for the rejection of a row.

        Returns:
            Empty where the words tell it.
        """
        return ""

    @property
    def fault(self) -> Fault:
        """Says whether a row may be at fault.

        Called inside tasks by `SuspectRows`, which looks for it then.

        Returns:
            OUTSIDE unless the connector knows better.
        """
        return Fault.OUTSIDE

    @abstractmethod
    def error(self, what: str) -> DataflowError:
        """The same for the engine.

        Called by `translate_errors`, on the driver and in tasks.

        Args:
            what: what was tried, and on which table or server; never with a secret.

        Returns:
            TransientError or PermanentError: what was tried, the server's words, advice.
        """


@contextmanager
def translate_errors(what: str) -> Iterator[None]:
    """Failures inside as the engine's errors.

    Called by connectors around whatever asks their server, on the driver and in tasks.

    Args:
        what: what is tried, and on which table or server; never with a secret.

    Raises:
        TransientError: the same may succeed later.
        PermanentError: a person must act.
    """
    try:
        yield
    except ServerFailure as failure:
        raise failure.error(what) from None
