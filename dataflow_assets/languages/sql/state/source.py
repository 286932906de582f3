"""A query with state as a source: what it delivers are rows of its target that have changed."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.kafka.source.source import KafkaSource
from dataflow_assets.contracts import Address, PartSlice, Slice, SourceSession, SourceTraits
from dataflow_assets.contracts.reading import ReadsParts
from dataflow_assets.languages.promises import ChecksKeys
from dataflow_assets.languages.sql.state.options import ViewSourceOptions
from dataflow_assets.languages.sql.state.output import METADATA_KEYS
from dataflow_assets.languages.sql.state.target_keys import check, narrow
from dataflow_assets.languages.sql.state.united import UnitedSession
from dataflow_assets.secrets import SecretRef

if TYPE_CHECKING:  # a manifest is loaded without clients
    from dataflow_assets.connectors.kafka.source.session import KafkaSourceSession


class ViewSource(ViewSourceOptions, ChecksKeys, ReadsParts):
    """Made by the manifest language `sql`; DataFlow manifests do not name it.

    Each micro-batch is computed before it is recorded, and its rows are frozen in files: whatever
    becomes of the topic meanwhile, a crash reads the same rows again. The position names the state
    that they came of.
    """

    type: ClassVar[str] = "view"
    delivers: ClassVar[Literal["messages", "columns", "entries"]] = "entries"
    guarantee: ClassVar[str] = (
        "Every committed record counts exactly once: state and position move in the same commit as "
        "the rows of the target."
    )
    metadata_keys: ClassVar[Mapping[str, str]] = METADATA_KEYS

    @property
    def sources(self) -> tuple[KafkaSource, ...]:
        """The messages of all tables, by their numbers."""
        return (self.source, *self.others)

    @override
    def address(self) -> Address:
        return self.source.address()

    @override
    def resolved_address(self) -> Address:
        return self.source.resolved_address()

    @override
    def spellings(self) -> tuple[str | SecretRef, ...]:
        return tuple(one for source in self.sources for one in source.spellings())

    @property
    @override
    def connection_group(self) -> Hashable:
        # Sessions that are asked together have messages of one class.
        if not self.others:
            return self.source.connection_group
        return tuple(source.connection_group for source in self.sources)

    @property
    @override
    def traits(self) -> SourceTraits:
        messages = self.source.traits
        return SourceTraits(
            poll_seconds=messages.poll_seconds,
            keeps_running=messages.keeps_running,
            replays=False,
            also_reads=tuple(dict.fromkeys(one.address() for one in self.others)),
        )

    @override
    def check_keys(self, target: pa.Schema, name: str) -> None:
        check(narrow(self.view), target, name, self.equal_keys)

    @override
    def open(self, flow: str) -> SourceSession:
        from dataflow_assets.languages.sql.state.session import ViewSession

        return ViewSession(self, flow, self._messages(flow))

    def _messages(self, flow: str) -> KafkaSourceSession | UnitedSession:
        if not self.others:
            return self.source.open(flow)
        with ExitStack() as opened:
            sessions = [opened.enter_context(closing(one.open(flow))) for one in self.sources]
            opened.pop_all()
        return UnitedSession(sessions)

    @override
    def metadata(self, piece: Slice) -> dict[str, Any]:
        return {}

    @override
    def batches(self, piece: Slice, metadata: frozenset[str]) -> Iterator[pa.RecordBatch]:
        from dataflow_assets.languages.sql.state.output import read

        assert isinstance(piece, PartSlice)  # noqa: S101 - a view has no offsets
        return read(self.location, piece)
