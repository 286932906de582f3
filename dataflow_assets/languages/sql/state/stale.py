"""A state that is built again: rows of the target that only the state before it had."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from dataflow_assets.languages.sql.engine.group_rows import key_of
from dataflow_assets.languages.sql.engine.view import ViewPlan
from dataflow_assets.languages.sql.state.hops import Hop, sent_rows, stage_of
from dataflow_assets.languages.sql.state.manifest import Manifest, StateFile, StateTable
from dataflow_assets.languages.sql.state.output import DELETED, OutputRow
from dataflow_assets.languages.sql.state.tables import bucket_rows
from dataflow_assets.records.record import parse

AT_ONCE = 500_000
"""Keys that are held in memory."""
Load = Callable[[StateFile], pa.Table]


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
