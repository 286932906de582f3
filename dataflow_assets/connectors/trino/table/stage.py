"""Rows on their way from the tasks to the one statement that stores them.

Few rows travel in the receipts and become part of the statement. Many are put into a table beside
the target, as chunks of JSON, each marked with the attempt of its task: only attempts that receipts
name count.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from dataflow_assets.connectors.trino.client import TrinoClient, literal
from dataflow_assets.connectors.trino.errors import MISSING, TrinoFailure
from dataflow_assets.connectors.trino.table.table import TrinoPlace

PREFIX = "dataflow_stage_"
MOST_INLINE = 100_000
"""Characters of rows that travel in one receipt."""
SPARE = 60_000
"""Characters of an INSERT into the stage that are left for all but the rows."""
MOST_ROWS = 1 << 20
"""Rows of a chunk: by chunk and row the statement knows their order."""
_COLUMNS = "attempt varchar, chunk bigint, body varchar"


class TrinoStaged(msgspec.Struct, frozen=True):
    """What one writer has handed over."""

    attempt: str
    rows: int
    inline: str = ""
    """The rows as a JSON array; empty where they are in the stage."""
    lacks: bool = False
    """Some of the rows do not carry every column, or delete their key."""
    records: int = 0
    """Of how many records the rows are."""
    first: int = 0
    """The offset of the first of these records."""


@dataclass
class TrinoChunks:
    """Rows of one writer, as JSON arrays, put into the stage as they become many."""

    client: TrinoClient
    place: TrinoPlace
    attempt: str
    most: int
    """Characters of one statement."""
    rows: int = 0
    _lines: list[str] = field(default_factory=list)
    _length: int = 0
    _chunks: int = 0

    @property
    def longest(self) -> int:
        return room(self.most)

    def add(self, line: str, length: int) -> None:
        """Takes a row of this length as it stands in SQL. Raises Failure."""
        if self._length + length > self.longest or len(self._lines) == MOST_ROWS - 1:
            self.flush()
        self._lines.append(line)
        self._length += length + 1
        self.rows += 1

    def flush(self) -> None:
        """Puts what waits into the stage. Raises Failure."""
        if not self._lines:
            return
        if not self._chunks:
            create(self.client, self.place)
        values = f"{literal(self.attempt)}, {self._chunks}, {literal(self._text())}"
        self.client.run(f"INSERT INTO {self.place.quoted_name} VALUES ({values})")  # noqa: S608 - quoted
        self._lines, self._length, self._chunks = [], 0, self._chunks + 1

    def handed_over(self, *, lacks: bool) -> TrinoStaged:
        if self._chunks or self._length > MOST_INLINE:
            self.flush()
            return TrinoStaged(self.attempt, self.rows, lacks=lacks)
        return TrinoStaged(self.attempt, self.rows, self._text() if self._lines else "", lacks)

    def _text(self) -> str:
        return f"[{','.join(self._lines)}]"


def create(client: TrinoClient, place: TrinoPlace) -> None:
    """Makes the stage where it is missing. Raises Failure."""
    client.create(f"CREATE TABLE IF NOT EXISTS {place.quoted_name} ({_COLUMNS})")


def name(branch: str, epoch: int, unique: str) -> str:
    """Of the stage of one span.

    Args:
        branch: `Target.id`.
        epoch: of the session.
        unique: letters and digits.
    """
    return f"{PREFIX}{_digest(branch)}_{epoch}_{unique}"


def drop(client: TrinoClient, place: TrinoPlace) -> None:
    """Drops a stage, if there is one. Raises Failure."""
    client.run(f"DROP TABLE IF EXISTS {place.quoted_name}")


def leftovers(client: TrinoClient, beside: TrinoPlace, branch: str, epoch: int) -> list[TrinoPlace]:
    """Stages of a branch that drivers up to this epoch have left behind. Raises Failure.

    A driver that is late must not drop those of the one that has taken over: rows would be missing
    from its statement.
    """
    begins = f"{PREFIX}{_digest(branch)}_"
    try:
        tables = client.rows(
            f"SHOW TABLES FROM {_schema(beside)} LIKE {literal(begins.replace('_', '!_') + '%')} "
            "ESCAPE '!'"
        )
    except TrinoFailure as failure:
        if failure.name not in MISSING:
            raise
        return []
    return [beside.beside(str(each)) for (each,) in tables if _epoch(str(each)) <= epoch]


def _epoch(name: str) -> int:
    return int(name.split("_")[-2])


def _digest(branch: str) -> str:
    return hashlib.sha256(branch.encode()).hexdigest()[:12]


def _schema(place: TrinoPlace) -> str:
    return place.quoted_name.rpartition(".")[0]


def gather(
    client: TrinoClient, place: TrinoPlace, staged: Sequence[TrinoStaged], most: int, left: int
) -> tuple[str, list[str]]:
    """Says where the rows of a span are: in a JSON array, or in attempts in the stage, in order.

    Rows of receipts go to the stage too where they are too many for one statement, or where others
    are there. Raises Failure.

    Args:
        client: of the sink.
        place: the stage of the span.
        staged: what the writers have handed over.
        most: characters of a statement.
        left: characters of rows for which the statement that stores them has room.
    """
    inline = [one for one in staged if one.inline]
    length = sum(length_of(one.inline) for one in inline)
    if all(one.inline or not one.rows for one in staged) and length <= left:
        return f"[{','.join(one.inline[1:-1] for one in inline)}]", []
    if inline:
        create(client, place)
    for one in inline:
        chunks = TrinoChunks(client, place, one.attempt, most)
        for line in json.loads(one.inline):
            text = msgspec.json.encode(line).decode()
            chunks.add(text, length_of(text))
        chunks.flush()
    return "", [one.attempt for one in staged if one.rows]


def room(most: int) -> int:
    """Characters of rows in an INSERT of so many, half of them where the INSERT is short."""
    return max(most - SPARE, most // 2)


def length_of(text: str) -> int:
    """Characters of a text as it stands in SQL, as Trino counts them.

    A quote is written twice. A letter outside of the first 65,536, such as an emoji, counts as two.
    """
    wide = 0 if text.isascii() else len(text.encode("utf-16-le")) // 2 - len(text)
    return len(text) + text.count("'") + wide
