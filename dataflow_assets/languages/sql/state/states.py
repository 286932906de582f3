"""The states of one view that a session knows: read once, and those of another query refused."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
import pyarrow as pa

from dataflow_assets.errors import PermanentError
from dataflow_assets.languages.sql.engine.group_rows import key_of
from dataflow_assets.languages.sql.engine.ranking import Ranking
from dataflow_assets.languages.sql.engine.view import ViewPlan
from dataflow_assets.languages.sql.state.digests import digests, former_digests
from dataflow_assets.languages.sql.state.files import StateFiles
from dataflow_assets.languages.sql.state.hops import Hop, sent_rows, stage_of
from dataflow_assets.languages.sql.state.manifest import (
    Earlier,
    Manifest,
    Position,
    StateFile,
    StateTable,
    manifest_of,
)
from dataflow_assets.languages.sql.state.options import ViewSourceOptions
from dataflow_assets.languages.sql.state.output import DELETED, OutputRow
from dataflow_assets.languages.sql.state.tables import bucket_rows
from dataflow_assets.languages.sql.state.tasks import StatePlace, load, part
from dataflow_assets.records.record import parse

AT_ONCE = 500_000
"""Keys that are held in memory."""
Load = Callable[[StateFile], pa.Table]


class QueryStates:
    """The manifests of the last two states; others are read on demand."""

    def __init__(self, source: ViewSourceOptions, flow: str, files: StateFiles) -> None:
        self._source, self._flow, self._files = source, flow, files
        self._known: dict[str, Manifest] = {}
        self._digests = digests(source.view), former_digests(source.view)

    def checked_state(self, position: Position) -> Manifest | None:
        """The state at a position; None: there is none yet.

        Raises PermanentError where it is of another query, Lost where a file of it is gone.
        """
        if not position.state:
            return None
        manifest = self.at(position)
        self._check(manifest)
        return manifest

    def at(self, position: Position) -> Manifest:
        """The state at a position, which is kept. Raises Lost, or PermanentError."""
        manifest = self._known[position.state] = self.read(position.state, position.digest)
        return manifest

    def read(self, name: str, digest: str) -> Manifest:
        """A state by the name of its manifest. Raises Lost, or PermanentError."""
        return self._known.get(name) or manifest_of(self._files.read(name, digest), name)

    def follow(self, start: Position, position: Position, manifest: Manifest) -> None:
        """Keeps a new state and the one that it was made of."""
        before = {name: one for name, one in self._known.items() if name == start.state}
        self._known = {position.state: manifest, **before}

    def follows_another(self, position: Position) -> bool:
        """Returns whether the state at a position was made here of another one."""
        return position.state in self._known and len(self._known) > 1

    def states_needed(self, position: Position) -> dict[str, Manifest]:
        """The states whose files are needed still, while the one at a position is the newest."""
        earlier = {one.state: self.read(one.state, one.digest) for one in position.earlier}
        return {**self._known, **earlier}

    def without_stale(
        self,
        place: StatePlace,
        manifest: Manifest,
        earlier: tuple[Earlier, ...],
        rebuilt_at: Mapping[str, int],
    ) -> tuple[Manifest, tuple[Earlier, ...]]:
        """Once a state is built again: deletes of rows that only those before it had.

        Args:
            place: where these deletes are frozen.
            manifest: the new state.
            earlier: the states before it was begun again.
            rebuilt_at: the offsets at which it is built.

        Returns:
            The new state, and the states before that are needed still.
        """
        if not earlier or not self._source.view.remembers:
            return manifest, ()
        if any(manifest.offsets.get(name, 0) < at for name, at in rebuilt_at.items()):
            return manifest, earlier
        before = [self.read(one.state, one.digest) for one in earlier]
        rows = stale_rows(self._source.view, manifest, before, lambda one: load(self._files, one))
        parts = part(self._files, place, list(rows))
        return msgspec.structs.replace(manifest, parts=(*manifest.parts, *parts)), ()

    def _check(self, manifest: Manifest) -> None:
        if any(manifest.query == one.query for one in self._digests):
            return
        again = (
            f"build it again: dataflow run PATH --flow {self._flow} --from earliest, with the path "
            "of its file, reads the topic again, and rows of the same keys are replaced"
        )
        # A ranking computes rows again only where their numbers change.
        same_shape = any(manifest.shape == one.shape for one in self._digests)
        if not same_shape or isinstance(self._source.view.stages[-1], Ranking):
            raise PermanentError(
                f"flow {self._flow}: the query was changed, and what is kept for it is of another "
                f"one: {again}. Or write the query as it was"
            )
        if self._source.accepted != manifest.query:
            raise PermanentError(
                f"flow {self._flow}: the query was changed; its groups are kept, and their rows in "
                f"the target are those of the query before. Either {again}. Or keep them, and "
                "accept that each row changes with the next record that changes its group: write "
                f"SET 'dataflow.acceptState' = '{manifest.query}'; in front of the INSERT"
            )


def stale_rows(
    view: ViewPlan, manifest: Manifest, earlier: Sequence[Manifest], load: Load
) -> Iterator[OutputRow]:
    """Deletes of the rows that states before had written, and the one that was built has not.

    Args:
        view: of the state that was built.
        manifest: of that state.
        earlier: the states before.
        load: gives the rows of a file.
    """
    rows = sum(file.rows for one in earlier for table in _groups(one) for file in table.files)
    slices = 1 + rows // AT_ONCE
    for number in range(slices):
        keys = set(_keys(view, manifest, load, number, slices))
        gone: set[bytes] = set()
        for one in earlier:
            gone.update(_keys(view, one, load, number, slices))
        yield from (OutputRow(key, DELETED) for key in sorted(gone - keys))


def _groups(manifest: Manifest) -> Iterator[StateTable]:
    """The groups of the last stage, whose rows are in the target."""
    stages = [stage for name in manifest.tables if (stage := stage_of(name)) is not None]
    yield from (manifest.tables[Hop("groups", one).table] for one in sorted(stages)[-1:])


def _keys(
    view: ViewPlan, manifest: Manifest, load: Load, number: int, slices: int
) -> Iterator[bytes]:
    """The keys of rows in the target, of one slice of so many."""
    for table in _groups(manifest):
        for bucket in range(len(table.buckets)):
            for stored in bucket_rows(table, bucket, len(table.buckets), load)["v"].to_pylist():
                for sent in sent_rows(stored):
                    # A key of other columns is of another target, which this flow does not write.
                    if view.key_names <= parse(sent).keys():
                        key = key_of(view, sent)
                        if zlib.crc32(key) % slices == number:
                            yield key
