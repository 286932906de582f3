"""Digits in binary COPY: stored and refused as PostgreSQL itself reads their text."""

from __future__ import annotations

import random

import psycopg
import pyarrow as pa
import pytest

import devservers
from dataflow_assets.connectors.postgresql.sink.encode_numerics import numerics
from tests.connectors.postgresql.driver import Place, store

ODD = """
0 -0 0.00 -0.000 00012.50 1 -1 9999 10000 99999999 100000000 0.1 0.0001 0.00001 12345.678901
1e5 1E+5 -1.5e3 1.50e1 1.5e-3 12e-1 1e-7 0e5 0e200000 0e-3 -0e2 1e9 1e10 -12.345e-2
0.005 0.015 -0.005 0.995 9999999999.994 9999999999.995 99999999999 1e999 1e131071 1e131072 1e200000
1e-16383 1e-16384 1e-20000 15e-16384 1e-999999 1e999999 1e99999999999999999999 1e-9999999999999999
5. .5 +7 NaN nan Infinity -inf +INF inf -nan abc 1.2.3 -- e5 .
"""
LONG = ["1" * 39, f"{'7' * 60}.{'3' * 70}", f"-{'9' * 3000}.{'1' * 3000}", f"0.{'0' * 60}123"]
BLANK = [" 1.5\n", "", "1 2"]
TYPES = ["numeric", "numeric(12,2)", "numeric(30)", "numeric(5,-2)", "numeric(3,5)", "price"]


def some_digits(number: int) -> list[str]:
    """Numbers as producers send them."""
    random.seed(number)
    return [
        f"{random.choice(['', '-'])}{random.randrange(10 ** random.randint(1, 12))}"
        + (f".{random.randrange(10**6):0{random.randint(1, 6)}d}" if random.random() < 0.7 else "")
        for _ in range(100)
    ]


@pytest.mark.parametrize("kind", TYPES)
def test_stored_or_refused_as_the_text_would_be(
    postgresql: devservers.PostgreSQL, schema: str, kind: str
) -> None:
    place = Place(postgresql.dsn(), schema)
    place.run(f"CREATE DOMAIN {schema}.price AS numeric(12,2)")
    place.run(f"CREATE TABLE orders (id int, n {kind})")
    texts = [*ODD.split(), *LONG, *BLANK, *some_digits(7), None]
    records = [{"id": index, "n": text} for index, text in enumerate(texts)]
    store(place.sink(), records).close()
    declared = f"{schema}.price" if kind == "price" else kind
    with psycopg.connect(place.dsn, autocommit=True) as connection:
        read = [as_read(connection, text, declared) for text in texts]
    expected = {index: text for index, (code, text) in enumerate(read) if code is None}
    codes = {index: code for index, (code, _) in enumerate(read) if code}
    assert dict(place.rows("id, n::text")) == expected
    found = {row[0]: row[3] for row in place.rejected()}
    assert found.keys() == codes.keys()
    assert [index for index, code in codes.items() if code not in found[index]] == []


def as_read(
    connection: psycopg.Connection, text: str | None, declared: str
) -> tuple[str | None, str | None]:
    """(SQLSTATE, None) or (None, what is stored), from PostgreSQL."""
    try:
        query = f"SELECT cast(cast(%s AS text) AS {declared})::text"
        ((found,),) = connection.execute(query, [text]).fetchall()
    except psycopg.Error as error:
        return error.sqlstate, None
    return None, found


def test_usual_digits_are_packed_at_once_wherever_the_column_begins() -> None:
    values = pa.array(["x", "1.5", None, "-20000.25", "7"])[1:]
    packed = numerics(values, "n")
    assert pa.types.is_fixed_size_binary(packed.type)
    assert packed.null_count == 1
    assert packed[0].as_py().hex() == "0003000100000001000000011388"
    assert packed[2].as_py().hex() == "00030001400000020002000009c4"
    assert numerics(values[1:2], "n").null_count == 1
