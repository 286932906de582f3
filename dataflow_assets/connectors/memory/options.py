"""What a manifest may say about an in-memory source or sink."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from dataflow_assets.contracts import Address, Sink, Source, SourceTraits


class MemorySourceOptions(Source):
    """A topic or table inside a store."""

    double: ClassVar[bool] = True
    store: str
    """Name of the store."""
    topic: str
    """Topic or table inside the store."""

    @property
    def traits(self) -> SourceTraits:
        # Topics and tables of one name are two things in a store.
        return replace(super().traits, reads_back=False)

    def address(self) -> Address:
        return Address("memory", self.store, None, self.topic)


class MemorySinkOptions(Sink):
    """A table with the columns `id` and `name` inside a store."""

    double: ClassVar[bool] = True
    store: str
    """Name of the store."""
    table: str
    """Table inside the store; negative ids are refused."""
    allowed: frozenset[int] = frozenset()
    """Negative ids that it takes all the same."""
    exists: bool = True
    """False: the table is created from a sample of the first records."""

    def address(self) -> Address:
        return Address("memory", self.store, None, self.table)
