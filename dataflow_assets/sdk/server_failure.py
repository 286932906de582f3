"""An error of a server's driver in one shape, and what it becomes for the engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

from dataflow_assets.errors import DataflowError


class ServerFailure(ABC, Exception):
    """One error of a driver. Connectors derive their own; it never leaves the connector."""

    @abstractmethod
    def error(self, what: str) -> DataflowError:
        """The same for the engine.

        Called by `translated`, on the driver and in tasks.

        Args:
            what: what was tried, and on which table or server; never with a secret.

        Returns:
            TransientError or PermanentError: what was tried, the server's words, advice.
        """


@contextmanager
def translated(what: str) -> Iterator[None]:
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
