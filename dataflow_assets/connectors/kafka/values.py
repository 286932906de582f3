"""Records to be sent; and keys and values that no option describes, but a manifest language."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dataflow_assets.formats.message_format import MessageFormat, Schemas
from dataflow_assets.formats.registry_client import RegistryClient
from dataflow_assets.formats.value_schema import ValueSchema

Headers = Sequence[tuple[str, bytes | None]]
FRAMING = 100  # bytes that a record and the batch around it need besides its own


@dataclass(frozen=True)
class Outgoing:
    """One record on its way."""

    topic: str
    value: bytes | None = field(repr=False)
    key: bytes | None = field(default=None, repr=False)
    headers: Headers = field(default=(), repr=False)
    timestamp: int | None = None
    """Milliseconds since 1970; None: when it is sent."""

    @property
    def size(self) -> int:
        """Its bytes in an uncompressed batch of its own, and a few more."""
        extra = sum(len(name.encode()) + len(value or b"") + 10 for name, value in self.headers)
        return FRAMING + len(self.value or b"") + len(self.key or b"") + extra


MakeRecord = Callable[[bytes | None, bool], Outgoing]
"""From a row as JSON, and whether it is deleted, to its record. Raises RejectedRecord."""


@dataclass(frozen=True)
class Begin:
    """The first offsets of a flow without a checkpoint, by partition.

    Other partitions begin where the consumer group is, else at the earliest record.
    """

    offsets: Mapping[int, int]


@dataclass(frozen=True)
class End:
    """A final end of a flow: what lies behind it is never read."""

    offsets: Mapping[int, int] = field(default_factory=dict)
    """By partition the first offset that is not read; a partition that is not named is not read."""
    millis: int | None = None
    """Instead: each partition ends at its first record of this time or later."""


class ValueReader(ABC):
    """Reads messages instead of `format`; it goes to the tasks with its source."""

    @abstractmethod
    def message_format(self, schemas: Schemas | None) -> MessageFormat:
        """Returns what makes rows of messages; `schemas` are those of the source's registry."""


class ValueWriter(ABC):
    """Makes records of rows instead of `format` and the options of keys; it goes to the tasks."""

    folded_keys: int
    """Among as many keys only the last change of each is written; 0: every change is."""

    @abstractmethod
    def value_schema(self, topic: str, registry: RegistryClient | None) -> ValueSchema | None:
        """Registers the schemas of keys and values; on the driver, once for each attempt."""

    @abstractmethod
    def records(
        self, topic: str, schema: ValueSchema | None, *, upserts: bool, old_keys: bool
    ) -> MakeRecord:
        """Returns what makes records; in the task, once for each slice.

        Args:
            topic: that of the sink.
            schema: what `value_schema` has returned.
            upserts: a record without a value deletes its key.
            old_keys: the topic has keys as an earlier version wrote them, and goes on with these.
        """
