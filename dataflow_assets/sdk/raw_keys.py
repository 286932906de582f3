"""The key of a raw row: columns that rows are matched by, of the metadata of the record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.record import NOT_UTF8

Convert = Callable[[Any], Any]


class RawKey:
    """Takes the columns of a key from metadata; empty where rows are appended.

    `columns`: of each the metadata key, and what makes the column's value of it.
    """

    def __init__(self, columns: Mapping[str, tuple[str, Convert]]) -> None:
        self._columns = columns

    def of(self, metadata: Mapping[str, Any] | None) -> dict[str, Any]:
        """The columns and their values. Raises RejectedRecord where one has none."""
        known = metadata or {}
        return {
            column: _convert(known, key, convert)
            for column, (key, convert) in self._columns.items()
        }


def _convert(metadata: Mapping[str, Any], key: str, convert: Convert) -> Any:
    value = metadata.get(key)
    if value is None or value == "":
        there = ", ".join(sorted(name for name, one in metadata.items() if one not in (None, "")))
        raise RejectedRecord(
            "encode",
            f"its metadata has no {key}, by which rows are matched: with rawMode conflictKey names "
            f"metadata, and no field of the body; this record has {there or 'none'}. Name one of "
            "these, or leave rawMode out to match rows by fields of the body",
        )
    if isinstance(value, str) and NOT_UTF8 in value:
        raise RejectedRecord(
            "encode",
            f"metadata {key}, by which rows are matched, is not UTF-8: several such keys would be "
            "one. Leave upsertMode out, or name other metadata in conflictKey",
        )
    try:
        return convert(value)
    except ValueError as error:
        raise RejectedRecord("encode", f"metadata {key} {error}") from None
