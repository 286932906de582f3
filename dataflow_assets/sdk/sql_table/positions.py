"""How far a polled table has been read, and which of its rows one part reads.

Sources that poll a database share this: the composite position as JSON text, older checkpoints of
the DataFlow Operator, and the parts of a span. Values are the server's own text of them; only the
server compares them. The text is canonical: equal positions are equal texts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any, Literal

from dataflow_assets.errors import PermanentError

PARTITION = "table"
Pair = tuple[str | None, str | None]
"""A change value and an order value."""
NOTHING: Pair = (None, None)
_NAMES = ("lastReadChangeTime", "lastReadOrderByValue", "lastReadTime", "lastReadID")
_FORMS = "RFC 3339, or Y-m-d h:m:s"


@dataclass(frozen=True)
class PolledPosition:
    """Rows up to the pair (`change`, `order`) are done; during the first load those up to `key`.

    `load`: the rows of the first load that lie behind `key` are still to be read, and the pair says
    which rows it covers; without `begun` its bound is not fixed yet. `query`: a query without order
    was read as a whole. `read_at`: the database's time of the last read; while `sweeping`, when it
    began: it takes several spans. `unordered`: how many rows had no place in the order when the
    first load began. `by`: the kinds of the columns that the pair is of; None where nobody knows,
    as of a position that an earlier version has stored.
    """

    state: Literal["load", "rows", "query"] = "load"
    change: str | None = None
    order: str | None = None
    key: str | None = None
    begun: bool = False
    read_at: str | None = None
    unordered: int = 0
    sweeping: bool = False
    by: str | None = None

    def dump(self) -> str:
        """As JSON text; what is not known is left out."""
        known = {name: value for name, value in vars(self).items() if value not in (None, False, 0)}
        return json.dumps(known, sort_keys=True, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str | int | None) -> PolledPosition:
        """From JSON text; nothing stored yet is the start."""
        if text is None:
            return START
        try:
            found = json.loads(str(text))
            unknown = set(found) - {field.name for field in fields(cls)}
        except (ValueError, TypeError):
            unknown = {"text"}
        if unknown:
            raise PermanentError(
                f"the checkpoint {str(text)[:200]!r} is not a position in a polled table; "
                "run dataflow reset, or start from earliest or a timestamp"
            )
        return cls(**found)

    @property
    def at_start(self) -> bool:
        """True where nothing has been read, and nothing been fixed."""
        return self.state == "load" and not self.begun

    @property
    def bound(self) -> Pair:
        """The pair."""
        return self.change, self.order

    def after_load(self) -> PolledPosition:
        """Returns the position once the first load is complete."""
        return replace(self, state="rows", key=None, begun=False)


START = PolledPosition()


@dataclass(frozen=True)
class Rows:
    """Which rows to read: those of `after < (change, order) <= upto`, and of `low < order <= high`.

    `load`: the range belongs to the first load, which also reads rows without a change value; its
    first range has the rows without an order value. Without an upper bound there is none.
    """

    after: Pair = NOTHING
    upto: Pair = NOTHING
    load: bool = False
    low: str | None = None
    high: str | None = None


@dataclass(frozen=True)
class Part:
    """What one part slice reads. `identity`: of the table; `rows` None: a query as it stands.

    `by`: as in a position.
    """

    identity: str | None
    rows: Rows | None
    by: str | None = None

    def dump(self) -> str:
        """As JSON text."""
        return json.dumps([self.identity, asdict(self.rows) if self.rows else None, self.by])

    @classmethod
    def parse(cls, text: str) -> Part:
        """From JSON text."""
        identity, rows, *others = json.loads(text)
        if rows is None:
            return cls(identity, None)
        after, upto = tuple(rows.pop("after")), tuple(rows.pop("upto"))
        return cls(identity, Rows(after, upto, **rows), *others)


def position_of_operator(document: Mapping[str, Any], source: str) -> PolledPosition:
    """The position of a checkpoint of the DataFlow Operator, older forms included.

    Its time is in UTC, to the last digit. Raises PermanentError for anything else.
    """
    unknown = sorted(set(document) - set(_NAMES))
    change = document.get("lastReadChangeTime", document.get("lastReadTime"))
    order = document.get("lastReadOrderByValue", document.get("lastReadID"))
    if unknown or (change is None and order is None):
        raise PermanentError(
            f"no checkpoint of a {source} source: it has {', '.join(document) or 'no key'}"
            f"; allowed: {', '.join(_NAMES)}"
        )
    time = None if change is None else moment(str(change), 9)
    return PolledPosition("rows", time, None if order is None else _scalar(order))


def moment(text: str, digits: int) -> str:
    """A point in time in UTC with an offset, its fraction cut to so many digits."""
    whole, fraction, zone = _taken_apart(text.strip())
    try:
        found = datetime.fromisoformat(whole + zone)
    except ValueError:
        raise PermanentError(f"{text!r} is not a point in time; allowed: {_FORMS}") from None
    zoned = found if found.tzinfo else found.replace(tzinfo=UTC)
    date, _, rest = zoned.astimezone(UTC).isoformat(" ").partition("+")
    kept = fraction[:digits].ljust(min(digits, 6), "0") if fraction else ""
    return f"{date}.{kept}+{rest}" if kept else f"{date}+{rest}"


def _taken_apart(text: str) -> tuple[str, str, str]:
    whole, _, rest = text.partition(".")
    zone = rest.lstrip("0123456789")
    return whole, rest[: len(rest) - len(zone)], zone


def _scalar(value: Any) -> str:
    """A value of JSON as a database reads it; whole floats are integers, as Go prints them."""
    if isinstance(value, bool | list | dict):
        raise PermanentError("lastReadOrderByValue is neither a number nor a text")
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
