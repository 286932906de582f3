"""Text that is JSON or digits, in systems without a type for it: the column's comment says so."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from dataflow_assets.contracts import Kind, kind_of

COMMENTS: Mapping[Kind | None, str] = {Kind.JSON: "JSON text", Kind.NUMERIC: "Digits of a number"}
"""By kind, how the comment of a column of text begins that holds it."""


def commented_kind(comment: str | None) -> Kind | None:
    """Returns what a column of text holds by its comment.

    Called where the columns of a table are read.
    """
    begins = COMMENTS.items()
    return next((kind for kind, start in begins if (comment or "").startswith(start)), None)


def text_kind(column: pa.Field, *, inside: bool) -> Kind | None:
    """Returns what the text holds that a column becomes; None where it becomes no text, or plain.

    Called where a table is made. Decimals that do not fit are digits, empty structs JSON, and so
    are lists and maps of JSON, since there is no place for a comment about their elements.

    Args:
        column: that the rows have.
        inside: whether the fields of a struct have comments of their own.
    """
    if _holds_json(column, inside=inside):
        return Kind.JSON
    wide = pa.types.is_decimal(column.type) and not fits(column.type)
    return Kind.NUMERIC if wide else kind_of(column)


def fits(decimal: pa.DataType) -> bool:
    """True for at most 38 digits, of which none are cut off in front of the point."""
    return bool(0 <= decimal.scale <= decimal.precision <= 38)


def _holds_json(column: pa.Field, *, inside: bool) -> bool:
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _holds_json(kind.value_field, inside=inside)
    if pa.types.is_map(kind):
        return _holds_json(kind.item_field, inside=inside)
    if pa.types.is_struct(kind):
        fields = () if inside else kind
        return kind.num_fields == 0 or any(_holds_json(each, inside=inside) for each in fields)
    return isinstance(kind, pa.JsonType) or kind_of(column) == Kind.JSON
