"""The format that bodies of messages are written in, where that is not JSON."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Reasons = Mapping[int, str]
"""By the row of a batch: why its body cannot be decoded."""


@dataclass(frozen=True)
class Texts:
    """Bodies as JSON."""

    texts: pa.Array
    """Binary; null where the body was null, or is refused."""
    refused: Reasons = field(default_factory=dict)


@dataclass(frozen=True)
class Group:
    """Bodies of one schema."""

    at: Ints
    """The rows of the batch that they are in, ascending."""
    rows: pa.RecordBatch | pa.Array
    """Their columns, in the types of `ReadsParts.batches`; JSON texts where they are no records."""


@dataclass(frozen=True)
class Grouped:
    """Bodies as columns. Null bodies are in no group, and are not refused."""

    groups: Sequence[Group]
    refused: Reasons = field(default_factory=dict)


class MessageFormat(ABC):
    """Decodes the bodies of messages. Picklable: the driver makes it, tasks use it."""

    @abstractmethod
    def columns(self, bodies: pa.Array, as_json: frozenset[str] = frozenset()) -> Grouped:
        """Bodies as typed columns.

        Called inside tasks for each batch of messages where no step needs a record, and for the
        sample of a table that is still to be made.

        Args:
            bodies: binary, null where a message has no value.
            as_json: columns that the target keeps as JSON: they may come as JSON (a string of Kind
                json) where that takes less time than a struct or a list, which would be converted.

        Raises:
            TransientError where a schema cannot be fetched now; PermanentError where a person must
            act.
        """

    @abstractmethod
    def texts(self, bodies: pa.Array) -> Texts:
        """Bodies as JSON.

        Called inside tasks for each batch of messages where steps or the sink need JSON, and by
        `dataflow preview`.

        Args:
            bodies: binary, null where a message has no value.

        Returns:
            As many texts, in the same order.

        Raises:
            As `columns` does.
        """

    def of_events(self, but: frozenset[str]) -> MessageFormat:  # noqa: ARG002 - what overrides need
        """The format for a flow whose steps read change events of Debezium.

        Called by the driver once for each attempt of a run, and by previews and replays.

        Args:
            but: fields of rows whose types the manifest names, which steps convert.

        Returns:
            What makes `texts` in which the rows of events have values converted by what their
            schema says of Debezium's own types; by default the format itself.
        """
        return self

    def keys(self, keys: pa.Array) -> Texts:
        """Keys as text, or JSON.

        Called inside tasks and by `dataflow preview`, for each batch of messages whose keys
        somebody reads. By default keys are what they are.

        Args:
            keys: binary, null where a message has none.

        Returns:
            As many texts, in the same order.

        Raises:
            As `columns` does.
        """
        return Texts(keys)


@dataclass(frozen=True)
class StoredSchema:
    """A schema as a registry keeps it."""

    kind: str
    """AVRO, JSON or PROTOBUF."""
    text: str
    references: tuple[tuple[str, str], ...] = ()
    """Names and texts of the schemas that it builds on, each after those that it builds on."""


class Schemas(Protocol):
    """Schemas by their ids."""

    def by_id(self, number: int) -> StoredSchema:
        """The schema of an id.

        Called inside tasks, once for each batch and id; what was found is kept in the process.

        Raises:
            RejectedRecord where the registry has none: only the messages that name it are wrong.
            TransientError where the registry cannot be reached; PermanentError where a person must
            act.
        """
