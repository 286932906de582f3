"""The folder in which what a connector has delivered waits until every branch of the flow has it.

A part is one Parquet file. It is there once it is whole and survives a loss of power. Its footer
has the source offsets behind its records: what is not in a part was never delivered. Parts have
numbers without gaps. `state.json` has the offsets before the first part that is still there.

Behind an open part the connector cannot go on: it would deliver the part's records again. A part is
published once its task has sealed a part that is not open, and nobody reads it before. What is
still open when the next process begins becomes a part without records.

One process at a time writes parts to a folder: it holds `lock`. Whoever writes the state holds
`state.lock`.
"""

from __future__ import annotations

import fcntl
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from dataflow_assets.connectors.kafka_connect.errors import other_spool
from dataflow_assets.connectors.kafka_connect.parts import (
    EMPTIED,
    ConnectPart,
    published_parts,
    still_open,
)
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.records.decoding import decode_json
from dataflow_assets.sdk.durable_files import make_folder, sync

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("id", pa.string()),
        ("record", pa.binary()),
        ("refused", pa.string()),
    ]
)
"""Of a part: the topic that the connector names, the record's key as JSON, its value; why a record
could be no JSON, whose value is the record as text. Older parts do not have the last column."""
_OFFSETS, _PLAIN, _SCHEMAS = b"dataflow.offsets", b"dataflow.plain", b"dataflow.schemas"
_PATIENCE = 0.1  # seconds between two tries to get the lock


class ConnectOffset(msgspec.Struct, frozen=True, omit_defaults=True):
    """A source offset, and the task that has delivered it last."""

    task: int
    value: Any
    """What the connector is given to go on behind."""
    seen: Any = None
    """Where that is before the last records: the offset of those; they are dropped when they come
    again."""
    times: int = 1
    """How many sealed records have that offset."""

    @property
    def last(self) -> Any:
        return self.value if self.seen is None else self.seen


Offsets = Mapping[str, ConnectOffset]
"""By the source partition, as JSON whose keys are sorted."""


class ConnectState(msgspec.Struct, frozen=True):
    """The content of the folder. `id`: another one for each beginning from an empty folder."""

    id: str
    connector: str
    """The class that has delivered it."""
    first: int = 1
    """Number of the first part that is not forgotten."""
    offsets: dict[str, ConnectOffset] = {}
    """Before that part."""


class Spool:
    """One folder. Every process that reads parts sees it under the same name."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @property
    def size(self) -> int:
        """Bytes of the records that wait, before compression."""
        return sum(part.bytes for part in self.parts())

    @contextmanager
    def lock(self, patience: float) -> Iterator[None]:
        """For the process that writes. TransientError where another one does for too long."""
        make_folder(self.folder)
        until = time.monotonic() + patience
        with (self.folder / "lock").open("w") as lock:
            while not _take(lock.fileno()):
                if time.monotonic() > until:
                    raise TransientError(
                        f"another process writes to the spool {self.folder}: a run that was taken "
                        "over ends within a minute; two flows cannot share a spool"
                    )
                time.sleep(_PATIENCE)
            yield

    def state(self) -> ConnectState | None:
        """The state of the spool; None where no connector has run here."""
        try:
            text = (self.folder / "state.json").read_bytes()
        except FileNotFoundError:
            return None
        try:
            return decode_json(text, ConnectState)
        except msgspec.MsgspecError as error:
            raise PermanentError(f"{self.folder}/state.json cannot be read: {error}") from None

    def begin(self, connector: str, offsets: Offsets) -> ConnectState:
        """In a folder without state; the connector goes on behind the offsets. Needs the lock."""
        state = ConnectState(uuid.uuid4().hex, connector, 1, dict(offsets))
        with self._noting():
            self._write(state)
        return state

    def parts(self, after: int = 0) -> list[ConnectPart]:
        """The sealed parts with higher numbers, in their order."""
        try:
            names = [path.name for path in self.folder.iterdir()]
        except FileNotFoundError:
            return []
        return sorted(
            part for part in map(ConnectPart.parse, names) if part and part.number > after
        )

    def published_parts(self, after: int = 0) -> list[ConnectPart]:
        return published_parts(self.parts(after))

    def seal(
        self,
        part: ConnectPart,
        rows: pa.Table,
        offsets: Offsets,
        *,
        plain: bool = False,
        schemas: bool = False,
    ) -> None:
        """Stores a part for good; it is there whole, or not at all. Needs the lock.

        Args:
            part: its name; no other part has its number.
            rows: of SCHEMA.
            offsets: behind the rows.
            plain: values that are text or bytes are as they are; else everything is JSON.
            schemas: values are beside their schema.
        """
        footer = {_OFFSETS: msgspec.json.encode(offsets)} | {
            key: b"1" if value else b"" for key, value in ((_PLAIN, plain), (_SCHEMAS, schemas))
        }
        kept = rows.replace_schema_metadata(footer)
        unfinished = self.folder / f".{part.name}"
        try:
            with unfinished.open("wb") as file:
                pq.write_table(kept, file, compression="zstd")
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            unfinished.unlink(missing_ok=True)  # the disk may be full
            raise
        unfinished.rename(self.folder / part.name)
        sync(self.folder)

    def read(self, part: ConnectPart) -> pq.ParquetFile:
        return pq.ParquetFile(self.folder / part.name)

    def sealed_at(self, part: ConnectPart) -> float | None:
        """In seconds since 1970; None where it was forgotten."""
        try:
            return (self.folder / part.name).stat().st_mtime
        except FileNotFoundError:
            return None

    def offsets(self, parts: Iterable[ConnectPart], before: Offsets) -> dict[str, ConnectOffset]:
        merged = dict(before)
        for part in parts:
            footer = pq.read_schema(self.folder / part.name).metadata
            merged |= decode_json(footer[_OFFSETS], dict[str, ConnectOffset])
        return merged

    def end(self) -> tuple[int, dict[str, ConnectOffset]]:
        """Number of the last sealed part, and the offsets behind all of them. Needs the lock.

        The driver may forget parts meanwhile: it notes that before it deletes them.
        """
        while (state := self.state()) is not None:
            with suppress(FileNotFoundError):
                parts = self.parts(state.first - 1)
                offsets = self.offsets(parts, state.offsets)
                if self.state() == state:
                    return (parts[-1].number if parts else state.first - 1), offsets
        raise PermanentError(f"{self.folder}/state.json is gone: {other_spool(str(self.folder))}")

    def forget(self, upto: int) -> None:
        """Every branch has the parts up to this number: they are deleted, once that is noted."""
        with self._noting():
            state = self.state()
            if state is None or upto < state.first:
                return
            done = [part for part in self.parts(state.first - 1) if part.number <= upto]
            noted = ConnectState(
                state.id, state.connector, upto + 1, self.offsets(done, state.offsets)
            )
            self._write(noted)
            for part in done:
                (self.folder / part.name).unlink(missing_ok=True)

    def clear(self) -> None:
        """Takes away what an older process has left. Needs the lock.

        Parts that are not whole, parts that are forgotten, and the records of open ones.
        """
        for path in self.folder.glob(".*.parquet"):
            path.unlink(missing_ok=True)
        with self._noting():
            state = self.state()
            for path in self.folder.glob(".state.json.*"):
                path.unlink(missing_ok=True)
        for part in self.parts():
            if state is not None and part.number < state.first:
                (self.folder / part.name).unlink(missing_ok=True)
        for part in still_open(self.parts()):
            empty = ConnectPart(part.number, part.task, 0, 0, open=False, token=EMPTIED)
            self.seal(empty, SCHEMA.empty_table(), {})
            (self.folder / part.name).unlink()

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """For whoever writes the state: two drivers of a flow may do so, and the process."""
        with (self.folder / "state.lock").open("w") as lock:
            fcntl.flock(lock.fileno(), fcntl.LOCK_EX)
            yield

    def _write(self, state: ConnectState) -> None:
        unfinished = self.folder / f".state.json.{uuid.uuid4().hex}"
        with unfinished.open("wb") as file:
            file.write(msgspec.json.encode(state))
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(self.folder / "state.json")
        sync(self.folder)


def is_plain(file: pq.ParquetFile) -> bool:
    """Returns whether values that are text or bytes are as they are."""
    return bool((file.schema_arrow.metadata or {}).get(_PLAIN))


def has_schemas(file: pq.ParquetFile) -> bool:
    return bool((file.schema_arrow.metadata or {}).get(_SCHEMAS))


def canonical(partition: Any) -> str:
    """A source partition as the key of `Offsets`: equal maps are equal texts."""
    return msgspec.json.encode(partition, order="sorted").decode()


def _take(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
