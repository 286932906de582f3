"""Rejected records: an Iceberg table of their own beside the target.

Append-only, so at least once: the id is the same on every replay. What the last commit has put
there is noted in a property of that table, so that a crash before the rows' own commit does not
write it again.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyiceberg import exceptions as ice
from pyiceberg.table import Table

from dataflow_assets.connectors.iceberg.client import connect
from dataflow_assets.connectors.iceberg.options import TableSinkOptions
from dataflow_assets.connectors.iceberg.table.checkpoint import StoredCheckpoint, property_key
from dataflow_assets.connectors.iceberg.table.commit import Committer, TableChange
from dataflow_assets.connectors.iceberg.table.data_files import data_file, write_target
from dataflow_assets.connectors.iceberg.table.file_writer import FileWriter, file_writer
from dataflow_assets.connectors.iceberg.table_catalog import TableCatalog
from dataflow_assets.connectors.iceberg.types import table_schema
from dataflow_assets.contracts import Rejection, Slice, Target, utc_now
from dataflow_assets.failpoints import reach
from dataflow_assets.sdk.record_ids import rejection_id
from dataflow_assets.sdk.sql_table.rejected import REJECTED, rejected_row

_FILES = "rejected"
_LATER = [REJECTED.field(name) for name in ("step", "step_type", "rows", "reading", "metadata")]
"""Columns that a table of an earlier version gets."""
_TRIES = 20  # other writers' changes to give way to
MOST_NOTED = 500  # rejections noted by a token of 16 digits; a crash may repeat more than that


def identifier(sink: TableSinkOptions) -> tuple[str, ...]:
    """Namespace levels and name of the table of rejected records."""
    return (*sink.identifier[:-1], f"{sink.table}_rejected")


def rejected_table(catalog: TableCatalog, sink: TableSinkOptions) -> Table:
    """The table, made where it is missing; several tasks may try at once."""
    name = identifier(sink)
    table = catalog.table(name) or catalog.make(name, table_schema(REJECTED), {})
    for _ in range(_TRIES):
        columns = set(table.schema().column_names)
        missing = [one for one in _LATER if one.name not in columns]
        if not missing:
            break
        with suppress(ice.CommitFailedException), table.update_schema() as change:
            change.union_by_name(table_schema(missing))
        table.refresh()
    return table


class RejectWriter:
    """Stages the rejected records of one slice; reaches for the catalog only if there are any."""

    def __init__(
        self,
        sink: TableSinkOptions,
        target: Target,
        piece: Slice,
        name: str,
        stored: frozenset[str],
    ) -> None:
        """`stored`: tokens of the rejections that are in the table already."""
        self._sink, self._target, self._piece = sink, target, piece
        self._name, self._stored = name, stored
        self._files: FileWriter | None = None
        self._tokens: list[str] = []

    def write(self, rejected: Sequence[Rejection]) -> None:
        """Takes what is not in the table already."""
        by_token = {token(rejection_id(one, self._target, self._piece)): one for one in rejected}
        new = {key: one for key, one in by_token.items() if key not in self._stored}
        if new:
            files = self._open()
            rows = [self._row(one, files.schema) for one in new.values()]
            files.write(pa.RecordBatch.from_pylist(rows, files.schema))
            self._tokens = [*self._tokens, *new][: MOST_NOTED + 1]

    def close(self) -> tuple[str, ...]:
        """The files as one document that `split` tells apart."""
        if self._files is None:
            return ()
        documents = [json.loads(text) for text in self._files.close()]
        return (json.dumps({_FILES: documents, "tokens": self._tokens}),)

    def abort(self) -> None:
        if self._files is not None:
            self._files.abort()

    def _open(self) -> FileWriter:
        if self._files is None:
            table = rejected_table(connect(self._sink), self._sink)
            names = [name for name in REJECTED.names if name in table.schema().column_names]
            size = self._sink.target_file_size_bytes
            self._files = file_writer(write_target(table), self._name, names, size)
        return self._files

    def _row(self, one: Rejection, schema: pa.Schema) -> dict[str, Any]:
        row = rejected_row(self._target, self._piece, one) | {"rejected_at": utc_now()}
        as_sent = {} if "body_encoding" in schema.names else {"body": one.body, "key": one.key}
        return row | as_sent  # bytes in a table that an earlier version has made


def token(rejection_id: str) -> str:
    return hashlib.sha256(rejection_id.encode()).hexdigest()[:16]


def split(staged: Sequence[str]) -> tuple[list[str], list[str]]:
    """The documents of data files, and those of rejected records."""
    rejected = [text for text in staged if text.startswith(f'{{"{_FILES}"')]
    return [text for text in staged if text not in rejected], rejected


class IcebergRejectedTable:
    """The driver's end: commits staged rejections before the rows of the same span."""

    def __init__(self, catalog: TableCatalog, sink: TableSinkOptions, target: Target) -> None:
        self._catalog, self._sink = catalog, sink
        self._key = property_key(target, "rejected")
        self._note: dict[str, Any] | None = None
        self.committer: Committer | None = None
        """Of the last commit of this session; None before there is one."""

    def stored_tokens(self, checkpoint: StoredCheckpoint) -> frozenset[str]:
        """Tokens of the rejections that are stored although the rows beside them are not."""
        if self._note is None:
            table = self._catalog.table(identifier(self._sink))
            text = table.properties.get(self._key) if table else None
            note: dict[str, Any] = json.loads(text or "{}")
            self._note = note
        same = self._note.get("after") == _origin(checkpoint)
        return frozenset(self._note["tokens"] if same else ())

    def publish(self, staged: Sequence[str], checkpoint: StoredCheckpoint) -> None:
        """Publishes the files and the note of what is in them in one commit."""
        if not staged:
            return
        documents = [json.loads(text) for text in staged]
        tokens = [t for document in documents for t in document["tokens"]] + [
            *self.stored_tokens(checkpoint)
        ]
        note = {"after": _origin(checkpoint), "tokens": tokens if len(tokens) <= MOST_NOTED else []}
        table = rejected_table(self._catalog, self._sink)
        files = [data_file(json.dumps(d), table) for one in documents for d in one[_FILES]]
        commit_id = uuid.uuid4().hex
        text = json.dumps(note | {"commit": commit_id})
        self.committer = Committer(self._catalog, table)
        self.committer.commit(TableChange(self._key, lambda _: text, commit_id, files))
        self._note = note
        reach("iceberg.rejected-committed")


def _origin(checkpoint: StoredCheckpoint) -> list[Any]:
    return [dict(checkpoint.positions), checkpoint.source, checkpoint.manifest, checkpoint.reading]
