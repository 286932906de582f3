"""Values as PostgreSQL's text, where text COPY would not write them itself."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure
from dataflow_assets.connectors.postgresql.sink.composite_texts import check_clock
from dataflow_assets.connectors.postgresql.sink.encode_times import moments
from dataflow_assets.connectors.postgresql.table.column import TIMES, TYPE

_TIME = (
    r"^[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)? ?([Zz]|[+-][0-9]{2}(:?[0-9]{2}(:?[0-9]{2})?)?)?$"
)
_RANGE = r"""(?i)^([][(){}0-9:.,+ "tz-]|BC|AD|infinity|empty)*$"""
_SHORT_YEAR = (
    "(^|[^-0-9:.+])[0-9]{1,3}-[0-9]"  # by the role's DateStyle it may be a day, or a month
)
_RANGES = (b"daterange", b"tsrange", b"tstzrange")
_MULTIRANGES = (b"datemultirange", b"tsmultirange", b"tstzmultirange")
_UNSIGNED = (b"oid", b"xid", b"xid8", b"cid")  # of -1 the server makes 4294967295
_ISO = "no ISO text"
_BIT = b"bit(1)"


def text_values(values: pa.Array, field: pa.Field) -> pa.Array:
    """A column that is no array. Raises Failure where a text's meaning would not be its own.

    The server reads words such as `now` by its clock, and other dates than ISO's by the settings
    of the role: the same record would become another value when it is read again.
    """
    declared = (field.metadata or {}).get(TYPE, b"")
    if pa.types.is_binary(field.type):
        texts = [None if v is None else rf"\x{v.hex()}" for v in values.to_pylist()]
        return pa.array(texts, pa.string())
    if pa.types.is_temporal(field.type):
        return moments(values)
    if declared == _BIT:
        bits = pc.if_else(pc.equal(values, "true"), "1", values)
        return pc.if_else(pc.equal(values, "false"), "0", bits)
    if declared.startswith(b"time") and declared.endswith(b" with time zone"):
        _refuse(values, pc.invert(pc.match_substring_regex(values, _TIME)), field, _ISO)
    if declared in _UNSIGNED:
        _refuse(values, pc.match_substring(values, "-"), field, "outside the range")
    if declared in _RANGES or declared in _MULTIRANGES:
        strange = pc.invert(pc.match_substring_regex(values, _RANGE))
        short = pc.match_substring_regex(values, _SHORT_YEAR)
        _refuse(values, pc.or_(strange, short), field, _ISO)
    if TIMES in (field.metadata or {}):
        check_clock(values, field)
    return values


def _refuse(values: pa.Array, wrong: pa.Array, field: pa.Field, what: str) -> None:
    found = values.filter(wrong.fill_null(False))
    if len(found):
        declared = field.metadata[TYPE].decode()
        raise PostgresqlFailure(
            f'"{found[0]}" is {what} of type {declared}', "22007", column=field.name
        )
