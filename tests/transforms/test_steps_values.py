"""Steps that write values: what their examples cannot show."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.record import NotJson, Record, encode, parse, text
from dataflow_assets.records.step import Apply, Context, Step
from dataflow_assets.transforms.cast import Cast
from dataflow_assets.transforms.insert_field import InsertField
from dataflow_assets.transforms.mask import Mask
from dataflow_assets.transforms.timestamp import Timestamp
from dataflow_assets.transforms.timezone import Timezone

ZONES = "UTC", "Europe/Berlin", "America/St_Johns"


def compiled(step: type[Step], **config: Any) -> Apply:
    context = Context(datetime(2026, 7, 20, 10, tzinfo=UTC))
    return step.model_validate_json(encode(config)).compile(context)


def record(body: str, **metadata: Any) -> Record:
    return Record(parse(body.encode()), metadata, "a route")


def one(apply: Apply, body: str, **metadata: Any) -> str:
    found = apply(record(body, **metadata))
    assert isinstance(found, Record)
    assert found.route == "a route"
    return (text(found.body) or b"").decode()


@pytest.mark.parametrize(
    ("step", "config", "place", "message"),
    [
        (Cast, {"spec": {}}, "spec", "at least 1"),
        (Cast, {"spec": {"a": "int"}}, "spec.a", "'int64'"),
        (Cast, {"spec": {"a": "int64", "$.a": "bool"}}, "spec", "names a path twice"),
        (Cast, {"spec": {"a.b": "int64", "a": "bool"}}, "spec", "names a.b inside of a"),
        (Cast, {"spec": {"a[0]": "int64", "a": "bool"}}, "spec", "names a[0] inside of a"),
        (Cast, {"spec": {"a.0": "int64", "a[0]": "bool"}}, "spec", "names a path twice"),
        (Cast, {"spec": {"a.*": "int64"}}, "spec.a.*.[key]", "cannot be written"),
        (InsertField, {"fields": {}}, "fields", "at least 1"),
        (InsertField, {"fields": {"a": "x", "$.a": "y"}}, "fields", "names a path twice"),
        (InsertField, {"fields": {"a": "x", "a.b": "y"}}, "fields", "names a.b inside of a"),
        (InsertField, {"fields": {"a.#": "x"}}, "fields.a.#.[key]", "cannot be written"),
        (InsertField, {"fields": {"a": "json:{"}}, "", "fields: the value of a: not JSON"),
        (InsertField, {"fields": {"a": "json:"}}, "", "fields: the value of a: not JSON"),
        (InsertField, {"fields": {"a": "${nwo}"}, "interpolate": True}, "", "does not exist"),
        (InsertField, {"fields": {"a": "x${now"}, "interpolate": True}, "", "does not exist"),
        (InsertField, {"fields": {"a": "${$.}"}, "interpolate": True}, "", "a path such as a.b"),
        (Mask, {"fields": []}, "fields", "at least 1"),
        (Mask, {"fields": ["*.pin"]}, "fields.0", "cannot be written"),
        (Mask, {"fields": ["a"], "maskChar": ""}, "maskChar", "at least 1"),
        (Timestamp, {"fieldName": "a.#"}, "fieldName", "cannot be written"),
        (Timestamp, {"format": "YYYY-MM-DD"}, "format", "has no part of a date"),
        (Timezone, {"timezone": "Mars", "fields": ["a"]}, "timezone", "is not a time zone"),
        (Timezone, {"timezone": "UTC", "fields": []}, "fields", "at least 1"),
        (Timezone, {"timezone": "UTC", "fields": ["a.#.b"]}, "fields.0", "cannot be written"),
        (Timezone, {"timezone": "UTC", "fields": ["a"], "format": "Unix"}, "format", "'UnixMilli'"),
    ],
)
def test_options_that_cannot_work(
    step: type[Step], config: dict[str, Any], place: str, message: str
) -> None:
    with pytest.raises(ValidationError) as raised:
        step.model_validate_json(encode(config))
    error = max(raised.value.errors(), key=lambda error: len(error["loc"]))
    assert ".".join(str(part) for part in error["loc"]) == place
    assert message in error["msg"]


@pytest.mark.parametrize(
    ("step", "config", "body"),
    [
        (Cast, {"spec": {"a": "int64", "b": "float64", "c": "string"}}, '{"a":1,"b":1.0,"c":"x"}'),
        (Cast, {"spec": {"a": "bool", "b": "null"}}, '{"a":true,"b":null}'),
        (InsertField, {"fields": {"a": "${$.gone}"}, "interpolate": True}, "{}"),
        (Mask, {"fields": ["gone", "a.b"]}, '{"a":1}'),
        (Timezone, {"timezone": "UTC", "fields": ["t"]}, '{"t":"2026-01-01T00:00:00Z"}'),
        (Timezone, {"timezone": "UTC", "fields": ["t"], "format": "UnixMilli"}, '{"t":1e12}'),
        (Timestamp, {}, "[]"),
    ],
)
def test_where_nothing_changes_the_record_is_the_same(
    step: type[Step], config: dict[str, Any], body: str
) -> None:
    given = record(body)
    assert compiled(step, **config)(given) is given


@pytest.mark.parametrize("step", [Cast, InsertField, Mask, Timestamp, Timezone])
def test_a_tombstone_passes(step: type[Step]) -> None:
    example = next(it for it in step.examples if it.config)
    given = Record(NotJson(None), {})
    context = Context(datetime(2026, 7, 20, 10, tzinfo=UTC))
    assert step.model_validate(dict(example.config)).compile(context)(given) is given


@pytest.mark.parametrize(
    ("target", "body"),
    [
        ("int64", "1e999999"),
        ("int64", "1e-999999"),
        ("int64", '"1e999999999"'),
        ("int64", '"1e9999999999"'),
        ("int64", '"0x10"'),
        ("int64", '"1_000"'),
        ("int64", '"\u0667"'),
        ("int64", '""'),
        ("int64", "true"),
        ("int64", "9223372036854775807.5"),
        ("int64", '"-9223372036854775809"'),
        ("float64", "1e309"),
        ("float64", '"-1e309"'),
        ("float64", '"Inf"'),
        ("float64", "false"),
        ("float64", "null"),
        ("float64", "[]"),
        ("bool", "2"),
        ("bool", "0.5"),
        ("bool", '"0"'),
        ("bool", '"yes"'),
        ("bool", "null"),
        ("bool", "{}"),
        ("string", "null"),
        ("string", "[1]"),
        ("string", "{}"),
        ("string", "1e999999"),
    ],
)
def test_no_cast(target: str, body: str) -> None:
    with pytest.raises(RejectedRecord) as raised:
        one(compiled(Cast, spec={"o.a": target}), f'{{"o":{{"a":{body}}}}}')
    assert raised.value.stage == "step"


@given(st.integers(-(2**63), 2**63 - 1))
def test_int64_holds_all_64_bits_in_every_spelling(number: int) -> None:
    cast = compiled(Cast, spec={"a": "int64"})
    for spelling in (f"{number}", f"{number}.0", f'" {number} "', f'"{number}.000"', f"{number}e0"):
        assert one(cast, f'{{"a":{spelling}}}') == f'{{"a":{number}}}'


@given(st.decimals(-(10**300), 10**300, allow_nan=False, allow_infinity=False))
def test_float64_keeps_every_digit(number: Decimal) -> None:
    found = compiled(Cast, spec={"a": "float64"})(Record({"a": str(number)}, {}))
    assert isinstance(found, Record)
    assert found.body["a"] == number


@given(
    st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    st.sampled_from(ZONES),
    st.sampled_from(ZONES),
)
def test_through_two_zones_it_is_the_same_moment(moment: datetime, one: str, two: str) -> None:
    there = compiled(Timezone, timezone=one, fields=["t"])
    back = compiled(Timezone, timezone=two, fields=["$.t"])
    given = Record({"t": moment.isoformat()}, {})
    middle = there(given)
    assert isinstance(middle, Record)
    found = back(middle)
    assert isinstance(found, Record)
    assert datetime.fromisoformat(found.body["t"]) == moment


def test_a_time_field_named_twice_is_converted_once() -> None:
    apply = compiled(Timezone, timezone="UTC", fields=["t", "$.t"], format="UnixMilli")
    assert one(apply, '{"t":"1970-01-02T00:00:00Z"}') == '{"t":86400000}'


def test_a_field_masked_twice_keeps_its_length() -> None:
    apply = compiled(Mask, fields=["a", "$.a"], keepLength=True, maskChar="•")
    assert one(apply, '{"a":"abc"}') == '{"a":"•••"}'


def test_elements_of_arrays_are_masked_by_their_index() -> None:
    assert one(compiled(Mask, fields=["a.1", "b[0].c"]), '{"a":[1,2],"b":[{"c":3}]}') == (
        '{"a":[1,"***"],"b":[{"c":"***"}]}'
    )


def test_interpolation() -> None:
    fields = {
        "a": "$${now} ${now}",
        "b": "${metadata.x}${metadata.y}",
        "c": "${$.o}|${$.n}|${$.z}|${$.t}",
        "d": "$ {} ${metadata.x}",
        "e": "",
        "f": 'json:"${now}"',
    }
    step = InsertField.model_validate({"fields": fields, "interpolate": True})
    apply = compiled(InsertField, fields=fields, interpolate=True)
    given = {"o": {"k": [1]}, "n": Decimal("1.50"), "z": None, "t": True}
    written = {
        "a": "${now} 2026-07-20T10:00:00Z",
        "b": "12",
        "c": '{"k":[1]}|1.5||true',
        "d": "$ {} 1",
        "e": "",
        "f": "${now}",
    }
    found = apply(Record(given, {"x": "1", "y": 2}))
    assert isinstance(found, Record)
    assert found.body == {**given, **written}
    assert step.reads() == {"x", "y"}


def test_without_interpolation_only_whole_values_are_read() -> None:
    fields = {"a": "${metadata.x}", "b": "${metadata.y}!", "c": 'json:"${metadata.z}"'}
    assert InsertField.model_validate({"fields": fields}).reads() == {"x"}


def test_all_values_are_those_of_the_record_that_came_in() -> None:
    apply = compiled(InsertField, fields={"a": "${$.b}", "b": "${$.a}"}, interpolate=True)
    assert one(apply, '{"a":1,"b":2}') == '{"a":2,"b":1}'
