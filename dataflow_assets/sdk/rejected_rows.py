"""A row of a table of rejected records: its texts, and the row read back for a replay."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from dataflow_assets.contracts import Entry, attempt_of, place_of


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
    """What `encoded` was given.

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
            offset, rows and reading.
    """
    id_, branch, stage, n, body, body_encoding, key, key_encoding, *place, rows, reading = row
    sent, named = decoded(body, body_encoding), decoded(key, key_encoding)
    return Entry(id_, branch, stage, n, sent, named, origin(id_, *place), rows, reading)


def origin(id_: str, source: str, partition: str, offset: int) -> dict[str, Any]:
    """The metadata of a record that a table of rejected records keeps without its own.

    Called by a connector on the driver, for each row that a replay looks at.

    Args:
        id_: of the row.
        source: name of the topic or table that it was read from.
        partition: the row's column of that name.
        offset: the row's column of that name.

    Returns:
        Topic, partition and offset of the message as it was first read; of a row of a part that a
        replay has rejected only the topic.
    """
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
