"""Rows with text that is no value of its column: found by Trino before they are staged.

Most columns hold only what Arrow has checked. Of some the text is all that is known: addresses,
intervals, JSON that must become a map.
"""

from __future__ import annotations

from collections.abc import Sequence

from dataflow_assets.connectors.trino.client import TrinoClient, literal
from dataflow_assets.connectors.trino.encode import value, wire
from dataflow_assets.connectors.trino.table.stage import length_of
from dataflow_assets.connectors.trino.table.table import Column
from dataflow_assets.connectors.trino.type_names import TrinoType

_AT = "_dataflow_n"
_CHUNK = 400_000  # characters that are looked at in one statement


class TrinoTrial:
    """Of one writer; asks nothing where every column is checked already."""

    def __init__(self, client: TrinoClient, columns: Sequence[Column], most: int) -> None:
        """`most`: characters of rows that a statement takes."""
        self._client, self._columns, self._most = client, columns, min(most, _CHUNK)
        self._doubtful = [one for one in enumerate(columns) if _doubtful(one[1].kind)]

    def refused_rows(self, lines: Sequence[str]) -> dict[int, str]:
        """Maps the number of a row to the reason why it cannot be stored. Raises Failure.

        Args:
            lines: rows as JSON arrays, two texts behind the columns.
        """
        found: dict[int, str] = {}
        if not self._doubtful:
            return found
        begin = 0
        while begin < len(lines):
            end, length = begin + 1, length_of(lines[begin])
            while end < len(lines) and length + (more := length_of(lines[end])) < self._most:
                length += more
                end += 1
            found |= {begin + row: why for row, why in self._ask(lines[begin:end]).items()}
            begin = end
        return found

    def _ask(self, lines: Sequence[str]) -> dict[int, str]:
        # Columns by number: no name of the table meets one of ours.
        kinds = [f"c{at} {wire(c.kind)}" for at, c in enumerate(self._columns)]
        names = ", ".join(f"c{at}" for at in range(len(self._columns)))
        kinds += ["_dataflow_op varchar", "_dataflow_absent varchar"]
        given = literal(f"[{','.join(lines)}]")
        rows = f"CAST(json_parse({given}) AS ARRAY(ROW({', '.join(kinds)})))"
        bad = ", ".join(map(_fails, self._doubtful))
        some = " OR ".join(map(_fails, self._doubtful))
        answer = self._client.rows(
            f"SELECT {_AT}, {bad} FROM UNNEST({rows}) WITH ORDINALITY "  # noqa: S608 - quoted
            f"AS given ({names}, _dataflow_op, _dataflow_absent, {_AT}) WHERE {some}"
        )
        return {row - 1: self._reason(marks) for row, *marks in answer}

    def _reason(self, marks: Sequence[bool]) -> str:
        bad = [c for (_, c), mark in zip(self._doubtful, marks, strict=True) if mark]
        return ", ".join(f"column {c.name}: not the text of a {c.kind.spelling}" for c in bad)


def _fails(numbered: tuple[int, Column]) -> str:
    at, column = numbered
    name = f"c{at}"
    return f"({name} IS NOT NULL AND TRY({value(name, column.kind)}) IS NULL)"


def _doubtful(kind: TrinoType) -> bool:
    if kind.name.startswith("timestamp"):
        return kind.digits > 9
    if kind.name.startswith("time"):
        return True  # a day may end at 24:00 elsewhere
    if kind.name.startswith("interval") or kind.name in {"ipaddress", "json", "map"}:
        return True
    return any(map(_doubtful_inside, kind.inner))


def _doubtful_inside(kind: TrinoType) -> bool:
    """Also text, and times: how long they may be, and infinity, are checked of columns only."""
    return kind.is_bounded or kind.name.startswith(("date", "time")) or _doubtful(kind)
