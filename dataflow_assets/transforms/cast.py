"""cast: gives fields the type that a sink expects."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from typing_extensions import override

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.paths.path import Writable, apart
from dataflow_assets.records.record import LONGEST_TEXT, MISSING, Record, text_form
from dataflow_assets.records.step import Apply, Context, Example, Origins, Step
from dataflow_assets.spec import Addition

Target = Literal["string", "int64", "float64", "bool", "null"]

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,9})?", re.ASCII)
_LEAST, _MOST = -(2**63), 2**63 - 1
_DIGITS = len(str(_MOST))
_FARTHEST = Decimal(sys.float_info.max)
_NEAR = _FARTHEST.adjusted()
_BOOLS: Mapping[str | int | Decimal, bool] = {"true": True, "false": False, 1: True, 0: False}


class Cast(Step):
    """Turns values into the declared types.

    | type | from | an error for |
    |---|---|---|
    | `string` | text, numbers, booleans | objects, arrays, null |
    | `int64` | whole numbers of 64 bits (`1.0` and `1e3` are whole), also as text | all others |
    | `float64` | numbers in the range of a double, also as text; all digits stay | all others |
    | `bool` | booleans; `true` and `false` as text in any case; 0 and 1 | all others |
    | `null` | anything | |

    Missing fields are skipped.
    """

    type: ClassVar[str] = "cast"
    spec: Annotated[
        dict[Writable, Target], Field(min_length=1), apart("only one can have its type")
    ]
    """Path to type."""
    nullable: Annotated[bool, Addition()] = False
    """Null stays null, instead of being an error."""

    examples: ClassVar[tuple[Example, ...]] = (
        Example(
            "text to a number, anything to null",
            {"spec": {"n": "int64", "z": "null"}},
            '{"n":"7","z":1}',
            ('{"n":7,"z":null}',),
        ),
        Example(
            "whole numbers in every spelling; large ones keep their digits",
            {"spec": dict.fromkeys("abcde", "int64")},
            '{"a":1.0,"b":1e3,"c":" 1.0 ","d":9223372036854775807,"e":"-9223372036854775808"}',
            ('{"a":1,"b":1000,"c":1,"d":9223372036854775807,"e":-9223372036854775808}',),
        ),
        Example(
            "a fraction is not cut off",
            {"spec": {"$.n": "int64"}},
            '{"n":1.5}',
            error="n: must be a whole number of 64 bits",
        ),
        Example(
            "one more than 64 bits hold",
            {"spec": {"n": "int64"}},
            '{"n":9223372036854775808}',
            error="n: must be a whole number of 64 bits",
        ),
        Example(
            "a number stays as it is written, digits of text become a number",
            {"spec": dict.fromkeys("abc", "float64")},
            '{"a":0.10,"b":"0.1234567890123456789","c":3}',
            ('{"a":0.10,"b":0.1234567890123456789,"c":3}',),
        ),
        Example(
            "NaN is not a JSON number",
            {"spec": {"n": "float64"}},
            '{"n":"NaN"}',
            error="n: must be a number in the range of a double",
        ),
        Example(
            "booleans",
            {"spec": dict.fromkeys("abcd", "bool")},
            '{"a":"TRUE","b":0,"c":1.0,"d":false}',
            ('{"a":true,"b":false,"c":true,"d":false}',),
        ),
        Example(
            "other numbers and texts are not booleans",
            {"spec": {"a": "bool"}},
            '{"a":"1"}',
            error="a: must be true, false, 0 or 1",
        ),
        Example(
            "text",
            {"spec": {"o.a": "string", "o.b": "string", "o.c": "string"}},
            '{"o":{"a":12345678901234567890,"b":1e3,"c":true}}',
            ('{"o":{"a":"12345678901234567890","b":"1000","c":"true"}}',),
        ),
        Example(
            "null is an error",
            {"spec": {"n": "int64"}},
            '{"n":null}',
            error="n: must be a whole number of 64 bits",
        ),
        Example(
            "with nullable it stays",
            {"spec": {"n": "int64", "m": "string"}, "nullable": True},
            '{"n":null}',
            ('{"n":null}',),
        ),
        Example("text that is not JSON passes", {"spec": {"n": "int64"}}, "hello", ("hello",)),
    )

    @override
    def origins(self, column: str) -> Origins:
        return frozenset({column})

    @override
    def compile(self, context: Context) -> Apply:
        plan = [
            (path.text, path.getter(), path.setter(), _CASTS[target])
            for path, target in self.spec.items()
        ]
        nullable = self.nullable

        def apply(record: Record) -> Record:
            body = record.body
            for name, get, put, cast in plan:
                value = get(body)
                if value is MISSING or (value is None and nullable):
                    continue
                try:
                    result = cast(value)
                except ValueError as error:
                    raise RejectedRecord("step", f"{name}: must be {error}") from None
                body = body if result is value else put(body, result)
            unchanged = body is record.body
            return record if unchanged else Record(body, record.metadata, record.route)

        return apply


def _string(value: Any) -> str:
    if value is None or isinstance(value, dict | list):
        raise ValueError("text, a number or a boolean")
    try:
        return text_form(value)
    except RejectedRecord:
        raise ValueError(f"a number of at most {LONGEST_TEXT} digits") from None


def _int64(value: Any) -> int:
    if type(value) is int and _LEAST <= value <= _MOST:
        return value
    number = _number(value)
    whole = _whole(number) if isinstance(number, Decimal) else number
    if whole is None or not _LEAST <= whole <= _MOST:
        raise ValueError("a whole number of 64 bits")
    return whole


def _whole(number: Decimal) -> int | None:
    # First the size: int() of 1e999999 would fill the memory.
    whole = int(number) if not number or number.adjusted() < _DIGITS else None
    return whole if whole == number else None


def _float64(value: Any) -> int | Decimal:
    if type(value) is Decimal and value.adjusted() < _NEAR:
        return value
    number = _number(value)
    if number is None or not -_FARTHEST <= number <= _FARTHEST:
        raise ValueError("a number in the range of a double")
    return number


def _number(value: Any) -> int | Decimal | None:
    """The very same number, the number that a text spells, or None."""
    if isinstance(value, str):
        return Decimal(value) if _NUMBER.fullmatch(value := value.strip()) else None
    return value if isinstance(value, int | Decimal) and not isinstance(value, bool) else None


def _bool(value: Any) -> bool:
    text = value.strip().lower() if isinstance(value, str) else value
    if isinstance(text, str | int | Decimal) and text in _BOOLS:
        return _BOOLS[text]
    raise ValueError("true, false, 0 or 1")


def _null(_: Any) -> None:
    return None


_CASTS: Mapping[Target, Callable[[Any], Any]] = {
    "string": _string,
    "int64": _int64,
    "float64": _float64,
    "bool": _bool,
    "null": _null,
}
