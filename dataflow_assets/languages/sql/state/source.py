"""A query with state as a source: what it delivers are rows of its target that have changed."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from contextlib import ExitStack, closing
from typing import Any, ClassVar, Literal

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.contracts import Address, PartSlice, Slice, Source, SourceSession
from dataflow_assets.languages.sql.state.options import ViewSourceOptions
from dataflow_assets.languages.sql.state.output import METADATA_KEYS
from dataflow_assets.languages.sql.state.target_keys import check, narrow
from dataflow_assets.languages.sql.state.united import UnitedSession
from dataflow_assets.secrets import SecretRef


class ViewSource(ViewSourceOptions):
    """Made by the manifest language `sql`; DataFlow manifests do not name it.

    Each micro-batch is computed before it is recorded, and its rows are frozen in files: whatever
    becomes of the topic meanwhile, a crash reads the same rows again. The position names the state
    that they came of.
    """

    type: ClassVar[str] = "view"
    delivers: ClassVar[Literal["messages", "columns", "entries"]] = "entries"
    reads_back: ClassVar[bool] = True
    replays: ClassVar[bool] = False
    guarantee: ClassVar[str] = (
        "Every committed record counts exactly once: state and position move in the same commit as "
        "the rows of the target."
    )
    metadata_keys: ClassVar[Mapping[str, str]] = METADATA_KEYS

    @property
    def sources(self) -> tuple[Source, ...]:
        """The messages of all tables, by their numbers."""
        return (self.source, *self.others)

    @override
    def address(self) -> Address:
        return self.source.address()

    @override
    def resolved_address(self) -> Address:
        return self.source.resolved_address()

    @property
    @override
    def also_reads(self) -> tuple[Address, ...]:
        return tuple(dict.fromkeys(one.address() for one in self.others))

    @override
    def spellings(self) -> tuple[str | SecretRef, ...]:
        return tuple(one for source in self.sources for one in source.spellings())

    @property
    @override
    def shared(self) -> Hashable:
        # Sessions that are asked together have messages of one class.
        if not self.others:
            return self.source.shared
        return tuple(source.shared for source in self.sources)

    @property
    @override
    def poll_seconds(self) -> float:
        return self.source.poll_seconds

    @property
    @override
    def keeps_running(self) -> bool:
        return self.source.keeps_running

    @override
    def check_keys(self, target: pa.Schema, name: str) -> None:
        check(narrow(self.view), target, name, self.equal_keys)

    @override
    def open(self, flow: str) -> SourceSession:
        from dataflow_assets.languages.sql.state.session import ViewSession

        return ViewSession(self, flow, self._messages(flow))

    def _messages(self, flow: str) -> SourceSession:
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
