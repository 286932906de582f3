"""What `test_faults` asks of the driver of a connector that has a server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import pytest

from devservers import Proxy

SECRET = "planted-s3cret"


class Remote(ABC):
    """A connector whose server can fail. Sentences are regular expressions of what a person reads.

    A connector without one of these fails the contract suite.
    """

    down: ClassVar[str]
    """The server stays down: where it was looked for."""
    denied: ClassVar[str]
    """Wrong credentials: which, and what to check."""
    altered: ClassVar[str | None]
    """`alter` was done to what a run reads or writes; None: the run does not mind."""
    dropped: ClassVar[str]
    """`drop` was: what is gone, and what to do."""
    again: ClassVar[str | None] = None
    """The next run finds it dropped: as `dropped`, unless it says something else."""

    @abstractmethod
    def through(self) -> tuple[Proxy, ...]:
        """From now on `declare` goes through these proxies; what the driver does itself does not.

        Called first, before anything is seeded.
        """

    def hasten(self, patch: pytest.MonkeyPatch) -> None:  # noqa: B027 - most answer at once
        """Until the patch is undone, what a server that is down never answers is given up soon."""

    @abstractmethod
    def busy(self, request: bytes) -> bool:
        """Whether the request is in the middle of reading or writing rows."""

    @abstractmethod
    def final(self, request: bytes) -> bool:
        """Whether the request commits; of a source, whether it reads to the end."""

    @abstractmethod
    def wrong_credentials(self) -> None:
        """`declare` has credentials that the server refuses, SECRET among them."""

    @abstractmethod
    def alter(self) -> None:
        """The column `name` is called `renamed`; a topic gets another partition."""

    @abstractmethod
    def mend(self) -> None:
        """What a person does after reading `altered`."""

    @abstractmethod
    def drop(self) -> None:
        """The table or topic is gone."""


def proxied(port: int, addfinalizer: Callable[[Callable[[], None]], None]) -> Proxy:
    """A proxy that lives as long as the test."""
    proxy = Proxy(port)
    addfinalizer(proxy.close)
    return proxy
