"""Numbers become decimals of Arrow exactly, or they are refused; none ends the process."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from dataflow_assets.formats.decimals import decimals, read_decimals
from dataflow_assets.formats.json import JsonDecoder

KINDS = [pa.decimal128(10, 2), pa.decimal128(38, 38), pa.decimal128(38, 0), pa.decimal256(76, 2)]
TOO_FINE = [
    *(f"1E-{digits}" for digits in (39, 40, 41, 76, 77, 85, 115, 155, 999, 99_999_999)),
    "-7E-99999999",
    "0." + "0" * 300 + "1",
    "1." + "0" * 60 + "1",
]
EXACT = {
    "0E-99999999": "0",
    "0." + "0" * 200: "0",
    "0.5" + "0" * 90: "0.5",
    "1E-1": "0.1",
    "0.00000000000000000000E+1": "0",
}


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("digits", TOO_FINE, ids=lambda digits: digits[:12])
def test_digits_that_the_column_has_no_place_for_are_refused(
    kind: pa.DataType, digits: str
) -> None:
    number = Decimal(digits)
    assert not (abs(number) >= Decimal(1).scaleb(-kind.scale) and number == number.to_integral())
    with pytest.raises(ValueError, match=r"digits|data loss|represented"):
        decimals([None, Decimal(1) / 4 if kind.scale else Decimal(1), number], kind)
    with pytest.raises(ValueError, match=r"digits|data loss|represented"):
        read_decimals(pa.array([None, digits]), kind)


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[1], KINDS[3]], ids=str)
@pytest.mark.parametrize(("digits", "number"), EXACT.items(), ids=lambda one: one[:12])
def test_zeros_behind_the_point_are_no_digits(kind: pa.DataType, digits: str, number: str) -> None:
    wanted = [None, Decimal(number)]
    assert decimals([None, Decimal(digits)], kind).to_pylist() == wanted
    assert read_decimals(pa.array([None, digits]), kind).to_pylist() == wanted


@pytest.mark.parametrize("digits", ["1E+9", "123456789", "9E+99999999"])
def test_numbers_beyond_the_precision_are_refused(digits: str) -> None:
    with pytest.raises(ValueError, match=r"precision|digits|represented"):
        decimals([Decimal(digits)], pa.decimal128(10, 2))
    with pytest.raises(ValueError, match=r"precision|digits|represented"):
        read_decimals(pa.array([digits]), pa.decimal128(10, 2))


@pytest.mark.parametrize("digits", ["1E-40", "1E-77", "1E-999", "1E-99999999"])
def test_a_record_with_such_a_number_is_rejected_alone(digits: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("n", pa.list_(pa.decimal128(10, 2)))])
    bodies = pa.array([b'{"id":1,"n":[%s]}' % digits.encode(), b'{"id":2,"n":[0.25]}'])
    decoded = JsonDecoder(schema).decode(bodies, pa.array([0, 1], pa.int64()))
    assert decoded.rows.column("id").to_pylist() == [2]
    (rejection,) = decoded.rejected
    assert "digits" in rejection.reason
