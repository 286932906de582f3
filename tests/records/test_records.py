"""Records: nothing is rounded, reordered or lost between the JSON that comes and that goes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.record import LONGEST_TEXT, NotJson, encode, parse, text, text_form
from tests.examples import examples

laws = settings(derandomize=True, deadline=None, max_examples=examples(300))

KEPT = [
    "null", "true", "0", "-1", '""', '"é😀"', "{}", "[]", "12345678901234567890123456789",
    "-12345678901234567890123456789", "0.1", "1.50", "-0.0", "0.3000000000000000000000000000001",
    '{"z":1,"a":{"c":[1,2.0],"b":null}}', r'"\u0000"', "1" * LONGEST_TEXT, "1." + "3" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("given", KEPT, ids=lambda given: given[:20])
def test_every_digit_and_the_order_of_keys_are_kept(given: str) -> None:
    assert encode(parse(given.encode())).decode() == given


@pytest.mark.parametrize(
    ("given", "number"),
    [
        ("1e400", Decimal("1e400")),
        ("1e-400", Decimal("1e-400")),
        ("1E+2", Decimal("1E+2")),
        ("1e2", Decimal("1E+2")),
        ("-1.5e-7", Decimal("-1.5E-7")),
    ],
)
def test_exponents_survive(given: str, number: Decimal) -> None:
    body = parse(given.encode())
    assert body.as_tuple() == number.as_tuple()
    assert json.loads(encode(body), parse_float=Decimal).as_tuple() == number.as_tuple()


@pytest.mark.parametrize("blanks", [b"\n", b" \t\r\n"])
def test_blanks_around_json_are_nothing(blanks: bytes) -> None:
    assert parse(blanks + b'{"a":1}' + blanks) == {"a": 1}


NOT_JSON = [
    "no json", "{", "[1,]", '{"a":1,}', "{'a':1}", "NaN", "[Infinity]", "01", "+1", ".5", "1.",
    "1 2", '{"a":1} x', '"a\nb"', "tru", r'"\uZZZZ"',
    '["\\ud800", x]', "\ufeff{}", "\x00", '{"a":NaN}',
]  # fmt: skip


@pytest.mark.parametrize("given", NOT_JSON)
def test_text_that_is_no_json_stays_as_it_is(given: str) -> None:
    body = parse(given.encode())
    assert body == NotJson(given.encode())
    assert text(body) == given.encode()
    assert not body.empty


@pytest.mark.parametrize("given", [None, b"", b" ", b"\r\n\t"])
def test_a_tombstone_is_empty(given: bytes | None) -> None:
    body = parse(given)
    assert body.empty
    assert text(body) == given


TOO_LONG = "JSON that cannot be kept exactly: an integer too long"
SURROGATE = "JSON that cannot be kept exactly: text with a lone surrogate"
REJECTED = [
    (b"1e99999999999999999999", "number out of range"),
    (b'{"a":[1e-99999999999999999999]}', "number out of range"),
    (b'{"a":{"b":-1.5E99999999999999999999}}', "number out of range"),
    (b"1" * 4301, TOO_LONG),
    (b'{"a":-' + b"1" * 4301 + b"}", TOO_LONG),
    (rb'"\ud800"', SURROGATE),
    (rb'"\udc00"', SURROGATE),
    (rb'{"\ud800":1}', SURROGATE),
    (rb'["\ud800\u0041"]', SURROGATE),
    (rb'["\ud800", "text"]', SURROGATE),
    (b"[" * 5_000 + b"]" * 5_000, "nested too deeply"),
    (b"[" * 5_000, "nested too deeply"),
    (b'{"a":' * 5_000 + b"1" + b"}" * 5_000, "nested too deeply"),
    (b"\xff", "invalid UTF-8 at byte 0"),
    (b'{"a":"\xc3"}', "invalid UTF-8 at byte 6"),
    (b'"\xed\xa0\x80"', "invalid UTF-8 at byte 1"),
    (b"no json \xff", "invalid UTF-8 at byte 8"),
]


@pytest.mark.parametrize(("given", "why"), REJECTED, ids=lambda value: str(value[:20]))
def test_what_cannot_be_held_exactly_is_rejected(given: bytes, why: str) -> None:
    with pytest.raises(RejectedRecord) as raised:
        parse(given)
    assert raised.value.stage == "decode"
    assert raised.value.reason == why


def _nested(depth: int) -> Any:
    body: Any = 1
    for _ in range(depth):
        body = [body]
    return body


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"a": "x\ud800"}, "lone surrogate"),
        ({"\udc00": 1}, "lone surrogate"),
        ([10**4300], "an integer of more than 4300 digits"),
        (_nested(5_000), "nested too deeply"),
    ],
    ids=["text", "key", "integer", "depth"],
)
def test_what_a_step_made_and_json_cannot_hold_is_rejected(body: Any, why: str) -> None:
    with pytest.raises(RejectedRecord, match=why):
        encode(body)


TEXT_FORMS = [
    ('"as it is"', "as it is"), ("true", "true"), ("false", "false"), ("null", ""), ("5", "5"),
    ("-5", "-5"), ("5.0", "5"), ("5.10", "5.1"), ("1e3", "1000"), ("1.5e-3", "0.0015"),
    ("100", "100"), ("1E+2", "100"), ("0.0", "0"), ("-0.0", "0"), ("0e5000", "0"),
    ("-0.50", "-0.5"), ("12345678901234567890123", "12345678901234567890123"), ("0.1", "0.1"),
    ('{"b": 1, "a": [1.50, "x"]}', '{"b":1,"a":[1.50,"x"]}'), ("[]", "[]"), ("{}", "{}"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "form"), TEXT_FORMS)
def test_the_text_of_a_value(given: str, form: str) -> None:
    assert text_form(parse(given.encode())) == form


@pytest.mark.parametrize(
    ("time", "form"),
    [
        (datetime(2026, 7, 20, 10, tzinfo=UTC), "2026-07-20T10:00:00Z"),
        (datetime(2026, 7, 20, 10, 0, 0, 120_000, UTC), "2026-07-20T10:00:00.12Z"),
        (datetime(2026, 7, 20, 10, 0, 0, 1, UTC), "2026-07-20T10:00:00.000001Z"),
        (datetime(2026, 7, 20, 1, tzinfo=timezone(timedelta(hours=3))), "2026-07-19T22:00:00Z"),
    ],
)
def test_the_text_of_a_time(time: datetime, form: str) -> None:
    assert text_form(time) == form


@pytest.mark.parametrize(
    "value", [Decimal("1e5000"), Decimal("1e-5000"), 10**4300], ids=["1", "2", "3"]
)
def test_a_number_too_long_to_write_out_is_rejected(value: Any) -> None:
    with pytest.raises(RejectedRecord, match="a number of more than 4300 digits"):
        text_form(value)


# Laws.

DIGITS = st.from_regex(
    r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?", fullmatch=True
)
TEXTS = st.text(max_size=6)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | TEXTS
    | st.decimals(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


def _exactly(raw: bytes) -> Any:
    """What another parser reads: numbers as (sign, digits, exponent), objects as pairs in order."""
    return json.loads(
        raw,
        parse_int=_digits,
        parse_float=_digits,
        object_pairs_hook=lambda pairs: ("object", pairs),
    )


def _digits(number: str) -> Any:
    """Without the sign of the integer -0, which no parser for integers keeps."""
    found = Decimal(number).as_tuple()
    return Decimal(0).as_tuple() if found[1:] == ((0,), 0) else found


@laws
@given(VALUES)
def test_what_was_written_is_read(value: Any) -> None:
    raw = encode(value)
    assert encode(parse(raw)) == raw
    assert _exactly(encode(parse(raw))) == _exactly(raw)


@laws
@given(st.lists(DIGITS, max_size=4))
def test_numbers_keep_every_digit(numbers: list[str]) -> None:
    raw = f"[{','.join(numbers)}]".encode()
    assert _exactly(encode(parse(raw))) == _exactly(raw)


@laws
@given(DIGITS)
def test_the_text_of_a_number_is_the_number(digits: str) -> None:
    form = text_form(parse(digits.encode()))
    assert Decimal(form) == Decimal(digits)
    assert "e" not in form.lower()
    assert "." not in form or not form.endswith(("0", "."))


@laws
@given(st.binary(max_size=30) | st.text(max_size=20).map(str.encode))
def test_any_bytes_are_json_or_kept_or_rejected(raw: bytes) -> None:
    try:
        body = parse(raw)
    except RejectedRecord as error:
        assert error.stage == "decode"  # noqa: PT017
        return
    if isinstance(body, NotJson):
        assert text(body) == raw
    else:
        assert _exactly(encode(body)) == _exactly(raw)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a":1,"a":2}',
        b'{ "a" : 1 , "a" : null }',
        b'[{"x":{"a":1,"a":1}}]',
        b'{"\\u0061":1,"a":2}',
        b'{"a":"\\"","b":1,"a":2}',
    ],
)
def test_a_key_that_stands_twice_is_rejected(raw: bytes) -> None:
    with pytest.raises(RejectedRecord, match="the key 'a' is a duplicate in one object"):
        parse(raw)


@pytest.mark.parametrize("raw", [b'{"a":{"a":1},"b":[{"a":1},{"a":2}]}', b'{"a":"\\"a\\":1"}'])
def test_a_key_may_stand_in_several_objects(raw: bytes) -> None:
    assert encode(parse(raw)) == raw
