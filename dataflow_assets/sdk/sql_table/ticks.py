"""How far the clock lets rows be read: what belongs to a tick that still runs may yet come.

Applications and columns cut times: to seconds, to milliseconds, to days. A row that changes after a
read, inside the same tick, has the change value that was read already. So a tick is read when it is
over. Which tick a column has is seen from its latest values; points in time are nanoseconds since
1970.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

RECENT = 1_000  # values that are looked at, the latest ones
RECENT_DAYS = 7  # what is older says little about who writes now
_SHARE = 200  # one of so many values is enough: something writes values that are cut like that
SECOND = 10**9
MINUTE = 60 * SECOND
QUARTER = 15 * MINUTE  # zones lie so far from each other: midnight is one of these everywhere
DAY = 24 * 60 * MINUTE
LONGEST_DAY = DAY + 60 * MINUTE  # in autumn
FARTHEST = 26 * 60 * MINUTE  # between two zones
_FRACTIONS = tuple(10**digits for digits in range(10))
WIDTHS = (*_FRACTIONS, MINUTE, QUARTER)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def tick(multiples: Mapping[int, int], values: int) -> int:
    """The tick of these values: how many of them are multiples of which of the WIDTHS.

    What is longer than a second must fit all of them: whole minutes are common among seconds.
    Called on the driver by a connector, for each session and change column.

    Args:
        multiples: by width in nanoseconds: how many of the values are its multiples.
        values: how many were looked at, `RECENT` at most.

    Returns:
        The width in nanoseconds; 1 where nothing is known.
    """
    if not values:
        return 1
    if multiples.get(QUARTER) == values:
        return DAY
    if multiples.get(MINUTE) == values:
        return MINUTE
    return max((w for w in _FRACTIONS if multiples.get(w, 0) * _SHARE > values), default=1)


def running(now: int, width: int) -> int:
    """The first value of the tick that runs now; values before this one are complete.

    Called on the driver by a connector, whenever it asks for the newest pair.

    Args:
        now: the server's clock, in nanoseconds.
        width: of the column's tick, in nanoseconds.

    Returns:
        Nanoseconds. Days begin in some zone: all of the last one may still run.
    """
    return now - LONGEST_DAY if width >= DAY else now // width * width


def beside(now: int, latest: int) -> int:
    """The earliest that the clock of any zone can show which has shown `latest` already.

    Called on the driver by a connector, for columns of times without a zone.

    Args:
        now: the server's clock in UTC, in nanoseconds.
        latest: the column's latest value, in nanoseconds.

    Returns:
        Nanoseconds.
    """
    return max(latest + (now - latest) % QUARTER, now - FARTHEST)


def nanoseconds(moment: datetime) -> int:
    """A time as nanoseconds since 1970; a time without zone counts as UTC.

    Called on the driver by connectors.
    """
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    return (since.days * 86_400 + since.seconds) * SECOND + since.microseconds * 1_000


def moment_of(nanoseconds: int) -> datetime:
    """Nanoseconds since 1970 as a time in UTC, cut to microseconds.

    Called on the driver by connectors.
    """
    return _EPOCH + timedelta(microseconds=nanoseconds // 1_000)


def waiting(column: str, width: int, otherwise: str) -> Iterator[str]:
    """For people: that rows wait for so long that somebody may miss them; how they need not.

    Called on the driver by a connector's `PolledSqlTable.notes`.

    Args:
        column: its name.
        width: of its tick, in nanoseconds.
        otherwise: what a person may do instead.

    Yields:
        One sentence where the tick is a minute or a day, else nothing.
    """
    if width < MINUTE:
        return
    what = "day" if width >= DAY else "minute"
    yield (
        f"{column} holds whole {what}s: the rows of a {what} are read when the {what} is over. To "
        f"read them at once, {otherwise}"
    )


def ties(column: str, kind: str, order: str) -> str:
    """For people: why rows may be missed where no clock tells that a value is complete.

    Called on the driver by a connector's `PolledSqlTable.notes`.

    Args:
        column: the name of the change column.
        kind: its type, as the database writes it.
        order: the name of the order column.

    Returns:
        One sentence.
    """
    return (
        f"{column} ({kind}) holds no times, and several rows may have the same value: a row that "
        f"gets the highest value after that value was read is missed where its {order} is lower "
        "than that of the last row. Use a column of times, or one that never holds a value twice"
    )
