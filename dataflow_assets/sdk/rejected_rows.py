"""A row of a table of rejected records: its texts, and the row read back for a replay."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from dataflow_assets.contracts import HEADER_LIST, Entry, attempt_of, place_of
from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.record import encode, parse


def encoded(value: bytes | None, refused: str = "") -> tuple[str | None, str | None]:
    """A body or a key as a column of text has it.

    Called by a connector inside tasks, twice for each rejected record.

    Args:
        value: as it was sent.
        refused: a character that the table's text cannot hold.

    Returns:
        The text and `utf-8`; base64 and `base64` where it is no such text; twice None for None.
    """
    if value is None:
        return None, None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = None
    if text is None or (refused and refused in text):
        return base64.b64encode(value).decode(), "base64"
    return text, "utf-8"


def decoded(text: str | None, encoding: str | None) -> bytes | None:
    """Returns what `encoded` was given.

    Called by a connector on the driver, twice for each row that a replay looks at.
    """
    if text is None:
        return None
    return base64.b64decode(text) if encoding == "base64" else text.encode()


def row_entry(row: Sequence[Any]) -> Entry:
    """A row as the entry of a replay.

    Called by a connector on the driver, for each row that a replay looks at.

    Args:
        row: id, branch, stage, n, body, body_encoding, key, key_encoding, source, partition,
            offset, metadata, rows and reading.
    """
    id_, branch, stage, n, body, body_encoding, key, key_encoding, *origin, rows, reading = row
    sent, named = decoded(body, body_encoding), decoded(key, key_encoding)
    return Entry(id_, branch, stage, n, sent, named, metadata_of(id_, *origin), rows, reading)


def written(metadata: Mapping[str, Any] | None) -> str | None:
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


def whole_record(texts: Sequence[str]) -> str:
    """The error record of a row of an error sink's table, in either layout.

    Called by a connector on the driver, for each row that a replay looks at.

    Args:
        texts: the whole record as one text; or its `error` and its `original_message`.
    """
    if len(texts) == 1:
        return texts[0]
    return f'{{"error":{texts[0]},"original_message":{texts[1]}}}'
