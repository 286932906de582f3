"""Spark DataFrame -> Trino table, for assets that users write themselves.

Tasks put the rows into a stage beside the target, and one statement stores those of the attempts
that have succeeded: readers see all rows or none, where the catalog commits a statement as one.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from dataflow_assets.connectors.trino.client import TrinoClient
from dataflow_assets.connectors.trino.encode import lines
from dataflow_assets.connectors.trino.errors import ANY
from dataflow_assets.connectors.trino.frames.digits import refuse_rounding
from dataflow_assets.connectors.trino.frames.read import find_table, place_of
from dataflow_assets.connectors.trino.frames.rows import TrinoRows, check_merge
from dataflow_assets.connectors.trino.options import TrinoSinkOptions
from dataflow_assets.connectors.trino.table import capabilities, create_table, stage, statement
from dataflow_assets.connectors.trino.table.table import Column, TrinoPlace, TrinoTable, find
from dataflow_assets.errors import PermanentError
from dataflow_assets.formats.columns import fit
from dataflow_assets.sdk.server_failure import translate_errors
from dataflow_assets.sdk.table_frames import (
    LEFT_SECONDS,
    Mode,
    refuse_null_keys,
    refuse_unknown_columns,
)
from dataflow_assets.sdk.table_frames import stage as staged_attempts
from dataflow_assets.sdk.table_partitions import Partitions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WRITES = "writes of users' assets"
"""In place of the branch that stages of flows are named after."""


def write(
    sink: TrinoSinkOptions,
    frame: DataFrame,
    mode: Mode,
    key: Sequence[str],
    partitions: Partitions | None = None,
) -> int:
    """As `TableFrames.write`.

    `append` is an INSERT, `upsert` a MERGE by the key, `overwrite` a MERGE that deletes all rows or
    those of the partitions; where a catalog has none, a CREATE OR REPLACE TABLE with the columns of
    the old one.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    place, columns = place_of(sink), to_arrow_schema(frame.schema)
    now = int(time.time())
    waits = place.beside(stage.name(WRITES, now, uuid.uuid4().hex[:8]))
    with (
        translate_errors(f"writing {place}"),
        closing(TrinoClient(sink, "dataflow-frames")) as client,
    ):
        table = _target(client, sink, place, columns)
        refuse_unknown_columns(table.place, columns.names, [c.name for c in table.columns])
        merges = _check(client, table, mode, tuple(key), partitions).exactly_once
        chosen = tuple(c for c in table.columns if c.name in columns.names)
        matched = tuple(key) if mode == "upsert" else ()
        stager = _TrinoStager(sink, waits, table, chosen, matched)
        with suppress(*ANY):
            for each in stage.leftovers(client, place, WRITES, now - LEFT_SECONDS):
                stage.drop(client, each)
        try:
            stage.create(client, waits)
            attempts, count = staged_attempts(frame, stager)
            source = statement.Source(chosen, "[]", waits, attempts)  # no attempts: no rows
            rows = TrinoRows(client, table, source, tuple(key), partitions, merges)
            rows.check(mode)
            if count or mode == "overwrite":
                rows.store(mode)
        finally:
            with suppress(*ANY):
                stage.drop(client, waits)
    return count


@dataclass(frozen=True)
class _TrinoStager:
    """Puts the rows of one Spark partition into the stage."""

    sink: TrinoSinkOptions
    stage: TrinoPlace
    table: TrinoTable
    columns: tuple[Column, ...]
    """Those that the frame has."""
    key: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> None:
        most = self.sink.max_statement_length
        names = [column.name for column in self.columns]
        with (
            translate_errors(f"writing {self.stage}"),
            closing(TrinoClient(self.sink, "dataflow-frames")) as client,
        ):
            chunks: stage.TrinoChunks | None = None
            for batch in batches:
                rows = self._fit(batch)
                attempt = batch.column(-1)[0].as_py()
                chunks = chunks or stage.TrinoChunks(client, self.stage, attempt, most)
                blank = ["0"] * batch.num_rows, [""] * batch.num_rows
                for line in lines(rows, names, *blank):
                    text = line.decode()
                    chunks.add(text, stage.length_of(text))
            if chunks is not None:
                chunks.flush()

    def _fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        place, names = self.table.place, [column.name for column in self.columns]
        refuse_null_keys(place, batch, self.key)
        schema = pa.schema([c.field for c in self.columns], self.table.schema().metadata)
        rows = fit(place, batch.select(names), schema)
        refuse_rounding(place, rows, self.columns)
        return rows


def _target(
    client: TrinoClient, sink: TrinoSinkOptions, place: TrinoPlace, columns: pa.Schema
) -> TrinoTable:
    """The table, made where it is missing."""
    if find(client, place) is None:
        target = sink.model_copy(update={"auto_create_table": True, "raw_mode": False})
        create_table.create(client, target, place, columns)
    return find_table(client, place)


def _check(
    client: TrinoClient,
    table: TrinoTable,
    mode: Mode,
    key: tuple[str, ...],
    partitions: Partitions | None,
) -> capabilities.Capabilities:
    matched = key if mode == "upsert" else partitions.columns if partitions else ()
    able = capabilities.ask(client, table, matched)
    if mode == "upsert":
        capabilities.check_upsert(table, able, key)
    elif partitions is not None:
        check_merge(table, able)
    elif mode == "overwrite" and not able.snapshots:
        raise PermanentError(
            f"mode overwrite needs CREATE OR REPLACE TABLE, which catalog {table.place.catalog} "
            "does not have: delete the rows, and append"
        )
    return able
