"""Rejected records: an Iceberg table of their own beside the target.

Append-only, so at least once: the id is the same on every replay. What one crash lets stand is
noted in a property of that table and not written again.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.table import Table

from dataflow_assets.connectors.iceberg.catalog import BoundedCatalog, connect
from dataflow_assets.connectors.iceberg.commits import Change, Committer
from dataflow_assets.connectors.iceberg.files import FileWriter, data_file, place
from dataflow_assets.connectors.iceberg.ledger import Ledger, property_key
from dataflow_assets.connectors.iceberg.types import table_schema
from dataflow_assets.contracts import Positions, Rejection, Target, utc_now
from dataflow_assets.failpoints import reach

if TYPE_CHECKING:
    from dataflow_assets.connectors.iceberg.sink import IcebergSink
    from dataflow_assets.connectors.iceberg.writer import WriteTicket

COLUMNS = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("flow", pa.string(), nullable=False),
        pa.field("branch", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("partition", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("n", pa.int32(), nullable=False),
        pa.field("stage", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("body", pa.binary()),
        pa.field("key", pa.binary()),
        pa.field("rejected_at", pa.timestamp("us", "UTC"), nullable=False),
    ]
)
MARK = '{"rejected":'


def identifier(sink: IcebergSink) -> tuple[str, ...]:
    """Namespace levels and name of the table of rejected records."""
    return (*sink.identifier[:-1], f"{sink.table}_rejected")


def rejected_table(catalog: BoundedCatalog, sink: IcebergSink) -> Table:
    """The table, made where it is missing; several tasks may try at once."""
    name = identifier(sink)
    return catalog.table(name) or catalog.made(name, table_schema(COLUMNS), {})


class RejectWriter:
    """Stages the rejected records of one slice; reaches for the catalog only if there are any."""

    def __init__(self, sink: IcebergSink, ticket: WriteTicket, partition: str, name: str) -> None:
        self._sink, self._ticket = sink, ticket
        self._partition, self._name = partition, name
        self._stored = ticket.rejected.get(partition, -1)
        self._files: FileWriter | None = None

    def write(self, rejected: Sequence[Rejection]) -> None:
        """Takes what is not in the table already."""
        new = [r for r in rejected if r.offset >= self._stored]
        if new:
            files = self._open()
            files.write(_batch([self._row(r) for r in new], files.schema))

    def close(self) -> tuple[str, ...]:
        """The files as documents that `split` tells apart."""
        if self._files is None:
            return ()
        return tuple(f"{MARK}{document}}}" for document in self._files.close())

    def abort(self) -> None:
        """Drops the files."""
        if self._files is not None:
            self._files.abort()

    def _open(self) -> FileWriter:
        if self._files is None:
            table = rejected_table(connect(self._sink), self._sink)
            size = self._sink.target_file_size_bytes
            self._files = FileWriter(place(table), self._name, COLUMNS.names, size)
        return self._files

    def _row(self, rejection: Rejection) -> dict[str, object]:
        target = self._ticket.target
        return {
            "id": rejection.id(target, self._partition),
            "flow": target.flow,
            "branch": target.branch,
            "source": target.source,
            "partition": self._partition,
            "offset": rejection.offset,
            "n": rejection.n,
            "stage": rejection.stage,
            "reason": rejection.reason,
            "body": rejection.body,
            "key": rejection.key,
            "rejected_at": utc_now(),
        }


def _batch(rows: list[dict[str, object]], schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema)


def split(staged: Sequence[str]) -> tuple[list[str], list[str]]:
    """The documents of data files and of files of rejected records."""
    data = [text for text in staged if not text.startswith(MARK)]
    rejected = [text for text in staged if text.startswith(MARK)]
    return data, [json.dumps(json.loads(text)["rejected"]) for text in rejected]


class RejectedTable:
    """The driver's end: commits staged rejections before the rows of the same span."""

    def __init__(self, catalog: BoundedCatalog, sink: IcebergSink, target: Target) -> None:
        self._catalog, self._sink = catalog, sink
        self._key = property_key(target, "rejected")
        self._note: dict[str, Any] | None = None

    def stored(self, ledger: Ledger) -> dict[str, int]:
        """Offsets below which rejections are stored already although the rows are not.

        Only where the note speaks of the very positions, source and manifest of this ledger: a
        rewound or changed flow rejects anew.
        """
        if self._note is None:
            self._note = self._load_note()
        if self._note.get("after") != _origin(ledger):
            return {}
        return {p: at for p, at in self._note["upto"].items() if isinstance(at, int)}

    def _load_note(self) -> dict[str, Any]:
        table = self._catalog.table(identifier(self._sink))
        text = table.properties.get(self._key) if table else None
        note: dict[str, Any] = json.loads(text or "{}")
        return note

    def publish(self, documents: Sequence[str], ledger: Ledger, upto: Positions) -> None:
        """One commit with the files and the note of what they cover."""
        if not documents:
            return
        table = rejected_table(self._catalog, self._sink)
        note = {"after": _origin(ledger), "upto": dict(upto)}
        commit_id = uuid.uuid4().hex
        text = json.dumps(note | {"commit": commit_id})
        files = [data_file(document, table.metadata.default_spec_id) for document in documents]
        Committer(self._catalog, table).commit(Change(self._key, lambda _: text, commit_id, files))
        self._note = note
        reach("iceberg.rejected-committed")


def _origin(ledger: Ledger) -> list[Any]:
    return [dict(ledger.positions), ledger.source, ledger.manifest]
