"""Rows of one branch, made of one batch of records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow_assets.contracts import OFFSET, Chunk, N, Rejection
from dataflow_assets.errors import RejectedRecord, blame
from dataflow_assets.formats.columns import new_columns
from dataflow_assets.formats.json import Decoded, JsonDecoder
from dataflow_assets.micro_batch import unknown_values
from dataflow_assets.micro_batch.branches import PassBranch
from dataflow_assets.micro_batch.message_metadata import COLUMNS
from dataflow_assets.micro_batch.originals import OriginalMessages, sink_rejection
from dataflow_assets.records.record import NOT_UTF8, NotJson, Record, encode, text
from dataflow_assets.records.wrapped import unwrap
from dataflow_assets.sdk.raw_rows import Shape

_NO_DELETES = (
    "a delete needs upsertMode: true with deleteMode or softDeleteColumn; to keep each change as "
    "an event, use envelopeFormat: debezium or rawMode: true"
)
_NO_KEY = (
    "a delete lacks the key column {}: the key of the sink must be what the log has of a row that "
    "is deleted"
)


@dataclass
class BranchRows:
    """Rows of one branch, made of one batch."""

    branch: PassBranch
    shape: Shape | None
    decoders: Callable[[bool], JsonDecoder]
    """For bodies of whole rows (True), and of rows that their source does not know all of."""
    tombstones: str
    gone: frozenset[int] = frozenset()
    """Rows of the batch that are deletions, where the source itself tells that."""
    at: list[int] = field(default_factory=list)
    n: list[int] = field(default_factory=list)
    texts: list[bytes | None] = field(default_factory=list)
    keys: dict[int, bytes | None] = field(default_factory=dict)
    unknown: dict[int, str] = field(default_factory=dict)
    """Why the source of a row's record does not know all of it."""
    failed: list[tuple[int, int, RejectedRecord]] = field(default_factory=list)
    rejected: list[Rejection] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._unwraps = self.branch.unwraps
        self._key_columns = self.branch.key_columns

    def take(self, at: int, n: int, record: Record) -> None:
        """Takes a record: the n-th that became of row `at`."""
        try:
            self._add(at, n, record)
        except RejectedRecord as error:
            self.failed.append((at, n, error))

    def _add(self, at: int, n: int, record: Record) -> None:
        if self._unwraps and self.shape is None:
            record = Record(unwrap(record.body), record.metadata)
        body = record.body if self.shape is None else self.shape(record)
        key = self._delete_key(record, deleted=at in self.gone)
        if key is None and isinstance(body, NotJson) and body.raw is None:
            if self.tombstones == "skip":
                return
            key = self._tombstone_key(record)
        sent = None if key is not None else text(body)
        if key is not None:
            self.keys[len(self.at)] = key
        if self.shape is None and (reason := unknown_values.unavailable(record)):
            self.unknown[len(self.at)] = reason
        self.at.append(at)
        self.n.append(n)
        self.texts.append(sent)

    def _delete_key(self, record: Record, *, deleted: bool) -> bytes | None:
        """The key of a row to delete, as a JSON object: of the record, else `metadata.id`.

        One that the source has `deleted` is never stored as a row, and `metadata.id` need not
        be of the column by which the sink matches rows.
        """
        if record.metadata.get("operation") != "delete":
            return None
        if self.shape is not None:
            key = self.shape.key(record)
            return encode(key) if key else None
        if not isinstance(record.body, dict):
            return None
        names = self._key_columns
        if deleted and not names:
            raise RejectedRecord("encode", _NO_DELETES)
        body = record.body
        if self.branch.traits.ignores_case:
            body = {self.branch.column(name) or name: value for name, value in body.items()}
        values = {name: body[name] for name in names if name in body}
        if not deleted and not values and len(names) == 1 and record.metadata.get("id") is not None:
            values = {names[0]: record.metadata["id"]}
        if deleted and len(values) < len(names):
            missing = ", ".join(name for name in names if name not in values)
            raise RejectedRecord("encode", _NO_KEY.format(missing))
        return encode(values) if names and len(values) == len(names) else None

    def _tombstone_key(self, record: Record) -> bytes | None:
        """The key of a tombstone, where tombstones delete."""
        if self.tombstones == "delete" and self.shape and (delete_key := self.shape.key(record)):
            return encode(delete_key)
        key = str(record.metadata.get("key") or "")
        if self.tombstones == "delete" and NOT_UTF8 in key:
            raise RejectedRecord("decode", "key of a null message: is not UTF-8")
        return key.encode() if self.tombstones == "delete" and key else None

    def chunk(self, offsets: Any, sent: OriginalMessages) -> Chunk:
        """The rows in the sink's schema; offsets are the messages'."""
        incomplete = unknown_values.incomplete(sent.batch)[np.array(self.at, np.int64)]
        incomplete[[*self.unknown]] = True
        decoded = self._decode(incomplete)
        if decoded.rejected:
            bodies = [self.texts[one.offset] for one in decoded.rejected]
            check_new_columns(self.branch, sent.batch, bodies)
        refused = [self._place(one, offsets, sent) for one in decoded.rejected]
        refused += [
            sink_rejection(int(offsets[at]), n, error, sent) for at, n, error in self.failed
        ]
        rows = decoded.rows
        if self.unknown and self.branch.traits.replaces_whole_rows:
            ordinals = rows.column(OFFSET).to_pylist()
            reasons = {
                row: self.unknown[one] for row, one in enumerate(ordinals) if one in self.unknown
            }
            rows = unknown_values.with_reasons(rows, reasons)
        rows = self._with_offsets(rows, offsets)
        size = sum(len(body) for body in self.texts if body)
        rejected = sorted([*self.rejected, *refused], key=lambda one: (one.offset, one.n))
        notes = frozenset(self.shape.notes if self.shape else ())
        return Chunk(rows, rejected, int(offsets[-1]) + 1, size, sent, notes)

    def _decode(self, incomplete: npt.NDArray[np.bool_]) -> Decoded:
        if not incomplete.any():
            return self._some(np.arange(len(self.at)), whole=True)
        whole = self._some(np.flatnonzero(~incomplete), whole=True)
        others = self._some(np.flatnonzero(incomplete), whole=False)
        tables = [pa.Table.from_batches([one.rows]) for one in (whole, others)]
        rows = pa.concat_tables(tables, promote_options="default").sort_by(OFFSET)
        (batch,) = rows.combine_chunks().to_batches() or [whole.rows]
        return Decoded(batch, [*whole.rejected, *others.rejected])

    def _some(self, numbers: npt.NDArray[np.int64], *, whole: bool) -> Decoded:
        keys = None
        if self.keys:
            keys = pa.array([self.keys.get(row) for row in numbers.tolist()], pa.binary())
        texts = pa.array([self.texts[row] for row in numbers.tolist()], pa.binary())
        return self.decoders(whole).decode(texts, pa.array(numbers, pa.int64()), keys)

    def _place(self, one: Rejection, offsets: Any, sent: OriginalMessages) -> Rejection:
        """The rejection of a row with the place of its message, and the message."""
        offset = int(offsets[self.at[one.offset]])
        original = sent[offset]
        stage = "decode" if self.texts[one.offset] == original.body else "encode"
        return replace(one, offset=offset, stage=stage, n=self.n[one.offset]).of(original)

    def _with_offsets(self, rows: pa.RecordBatch, offsets: Any) -> pa.RecordBatch:
        """The rows with their messages' offsets, and N where a message has become several."""
        ordinals = rows.column(OFFSET).to_numpy()
        places = offsets[np.array(self.at, np.int64)[ordinals]]
        index = rows.schema.get_field_index(OFFSET)
        rows = rows.set_column(index, OFFSET, pa.array(places, pa.int64()))
        if any(self.n):
            numbers = np.array(self.n, np.int32)[ordinals]
            rows = rows.append_column(N, pa.array(numbers, pa.int32()))
        return rows


def check_new_columns(
    branch: PassBranch, batch: pa.RecordBatch, refused: Iterable[bytes | None]
) -> None:
    """Raises NewColumns where a refused body has a column of its table that the target lacks.

    Called inside tasks, once for each batch of which a branch's decoder has refused something.

    Args:
        branch: whose target is asked.
        batch: of messages that were made of typed rows.
        refused: the bodies that the decoder has refused.
    """
    if branch.new_columns not in {"add", "fail"}:
        return
    schema = branch.ticket.schema
    columns = _columns(batch)
    unknown = [field for field in columns if branch.column(field.name) is None]
    keys = {key for body in refused for key in _keys(body)} if unknown else set()
    if lacked := [field for field in unknown if field.name in keys]:
        with blame(branch.ticket.target.branch):
            raise new_columns(lacked, schema, {*columns.names, *keys})


def _columns(batch: pa.RecordBatch) -> pa.Schema:
    return _read((batch.schema.metadata or {}).get(COLUMNS, b""))


@lru_cache(maxsize=64)
def _read(serialized: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(serialized)) if serialized else pa.schema([])


def _keys(body: bytes | None) -> Iterator[str]:
    try:
        yield from msgspec.json.decode(body or b"", type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
