"""The metadata of a rejected record: as text, and read back for a replay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dataflow_assets.contracts import HEADER_LIST
from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.record import encode, parse
from dataflow_assets.sdk.record_ids import attempt_of, place_of


def metadata_text(metadata: Mapping[str, Any] | None) -> str | None:
    """The metadata of a rejected record as a column of text has it.

    Called inside tasks, once for each rejected record.

    Args:
        metadata: what the flow has read of it; None: nothing.

    Returns:
        A JSON object; None for None, and where a step has made what JSON cannot hold: a rejected
        record is never refused.
    """
    try:
        return encode(dict(metadata)).decode() if metadata else None
    except RejectedRecord:
        return None


def metadata_of(
    id_: str, source: str, partition: str, offset: int, metadata: str | None
) -> Mapping[str, Any]:
    """The metadata of a record that a table of rejected records keeps.

    Called by a connector on the driver, for each row that a replay looks at.

    Args:
        id_: of the row.
        source: name of the topic or table that it was read from.
        partition: the row's column of that name.
        offset: the row's column of that name.
        metadata: the row's column of that name; None: an earlier version has stored the row, or
            the flow had read nothing.

    Returns:
        What the flow had read, with all digits; else topic, partition and offset of the message as
        it was first read, and of a row of a part that a replay has rejected only the topic.
    """
    known = parse(metadata.encode()) if metadata else {}
    return with_place(known, _origin(id_, source, partition, offset))


def with_place(metadata: Mapping[str, Any], place: Mapping[str, Any]) -> Mapping[str, Any]:
    """Where nobody has read the metadata, it is the place, beside all headers of the message."""
    return metadata if metadata.keys() - {HEADER_LIST} else {**place, **metadata}


def _origin(id_: str, source: str, partition: str, offset: int) -> dict[str, Any]:
    if attempt_of(id_) > 1:  # its columns tell of the replay that it was rejected in
        found = place_of(id_)
        if found is None:
            return {"topic": source}
        partition, offset = found
    number = int(partition) if partition.isdecimal() else partition
    return {"topic": source, "partition": number, "offset": offset}
