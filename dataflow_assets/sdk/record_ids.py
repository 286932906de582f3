"""The ids of rejected records: the same whenever a record is read, and counted on by replays."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache

from dataflow_assets.contracts import Entry, EntryName, PartSlice, Rejection, Slice, Target, digest

REPLAY = "#replay"  # ends the name of a branch that takes back what was rejected
_PLACE = re.compile(r"/([^/]+)/(\d+)/\d+/\w+$")  # the end of what `rejection_id` makes
_SAME_VALUES = re.compile(r"(?<!/)\*[0-9a-f]{32}(?:\.\d+)?$")  # `Place.row` behind values
_ATTEMPT = re.compile(r"#attempt-(\d+)(?:\.\d+)?$")
_ROW = re.compile(r"/\d+/\w+$")  # index and stage, at the end of what `rejection_id` makes


def rejection_id(one: Rejection, target: Target, piece: Slice) -> str:
    """Names the rejection; the same whenever its record is read.

    Called inside tasks, for each rejected record.

    Args:
        one: the rejection.
        target: the branch that has rejected the record.
        piece: the slice with the record.

    Returns:
        Flow, branch, source, place (partition and offset, where these name the record), n and
        stage. Of what a replay rejects: the id of the entry that was replayed, and the attempt.
    """
    if replayed := _entry_of_replay(one, target, piece):
        row = f".{one.n}" if one.n else ""
        id_ = replayed[0]
        return f"{_ATTEMPT.sub('', id_)}#attempt-{attempt_of(id_) + 1}{row}"
    where = f"{target.flow}/{target.branch}/{target.source_id or target.source}"
    scope = piece.partition
    if isinstance(piece, PartSlice):  # a later read has parts of the same name
        scope = f"{scope}@{digest(piece.upto.encode())}"
    place = one.place.key if one.place else f"{scope}/{one.offset}"
    return f"{where}/{place}/{one.n}/{one.stage}"


def rejected_reading(one: Rejection, target: Target, piece: Slice) -> int:
    """Says in which reading of the source the record was rejected.

    Called inside tasks, for each rejected record.

    Args:
        one: the rejection.
        target: the branch that has rejected the record.
        piece: the slice with the record.

    Returns:
        The branch's reading; a replay keeps that of its entry.
    """
    replayed = _entry_of_replay(one, target, piece)
    return replayed[1] if replayed else target.reading


def _entry_of_replay(one: Rejection, target: Target, piece: Slice) -> EntryName | None:
    """The entry that a replay has taken the record from; None where the flow itself reads."""
    if isinstance(piece, PartSlice) and target.branch.endswith(REPLAY):
        return names_in(piece.part)[one.offset]
    return None


def record_place(one: Rejection, piece: Slice) -> str:
    """Returns where the record is, for people.

    Called inside tasks, where a flow stops at the record or skips it.

    Args:
        one: the rejection.
        piece: the slice with the record.

    Returns:
        The record's place, or its partition and offset.
    """
    return str(one.place or f"partition {piece.partition}, offset {one.offset}")


def part_of(entries: Sequence[Entry]) -> str:
    """Names the entries of one part of a replay.

    Called by a replay when it plans, on the driver.

    Args:
        entries: of the part, by their ordinals.

    Returns:
        Text for `PartSlice.part`; entries of an earlier version have no reading in it.
    """
    return json.dumps([one.name if one.reading else one.id for one in entries])


@lru_cache(maxsize=4)
def names_in(part: str) -> tuple[EntryName, ...]:
    """Reads what `part_of` has written.

    Called inside tasks, for each rejected record of a replay.

    Args:
        part: `PartSlice.part` of a replay.

    Returns:
        The names of the entries, by their ordinals.
    """
    return tuple((one, 0) if isinstance(one, str) else (one[0], one[1]) for one in json.loads(part))


def place_of(entry: str) -> tuple[str, int] | None:
    """Returns where the record of an entry was read first.

    Called by a replay, on the driver.

    Args:
        entry: its id.

    Returns:
        Partition and offset; None where the record has a place of another kind.
    """
    found = _PLACE.search(_ATTEMPT.sub("", entry))
    return (found[1], int(found[2])) if found else None


def message_of(entry: str) -> str:
    """Groups the rejections of one message, whatever their stage and attempt.

    Called by a replay, on the driver. Rows that share the values of their place are one message
    here: a row of a table is known again although a column was added to the table since.

    Args:
        entry: the id of a rejection.

    Returns:
        What the ids of all of them begin with.
    """
    return _SAME_VALUES.sub("", _ROW.sub("", _ATTEMPT.sub("", entry)))


def attempt_of(entry: str) -> int:
    """Counts the attempts of an entry.

    Called inside tasks for each rejected record, and on the driver for each entry of a replay.

    Args:
        entry: its id.

    Returns:
        The attempt that the id is of, counted from 1.
    """
    found = _ATTEMPT.search(entry)
    return int(found[1]) if found else 1
