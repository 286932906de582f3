"""Protobuf messages as JSON, by the schemas that they name."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow_assets.formats.message_format import StoredSchema
from dataflow_assets.formats.protobuf import ProtobufFormat
from tests.examples import examples
from tests.formats.avro_messages import Known, bodies, headed

PAID = """
syntax = "proto3";
package shop;
import "confluent/meta.proto";
import "confluent/type/decimal.proto";
import "confluent/type/variant.proto";
import "google/type/date.proto";
import "google/type/money.proto";
message Paid {
  option (confluent.message_meta).doc = "one payment";
  confluent.type.Decimal sum = 1 [(confluent.field_meta) = {
    params: [{key: "precision", value: "20"}], tags: ["PII"], rules: [{name: "r", expr: "true"}]
  }];
  google.type.Date day = 2;
  google.type.Money fee = 3;
  map<string, confluent.type.Decimal> parts = 4;
  confluent.type.Variant raw = 5;
}
"""
LINE = """
syntax = "proto3";
package shop;
message Line { bytes raw = 1; float half = 2; }
"""
ORDER = """
syntax = "proto3";
package shop;
import "shop/line.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Order {
  uint64 id = 1;
  string name = 2;
  enum State { NEW = 0; PAID = 1; }
  State state = 3;
  optional double price = 4;
  google.protobuf.Timestamp at = 5;
  repeated Line lines = 6;
  map<string, int64> counts = 7;
  google.protobuf.StringValue note = 8;
  oneof way { string post = 9; int32 door = 10; }
  message Inner { bool yes = 1; }
}
message Other { sint32 n = 1; }
"""
KNOWN = Known(
    {
        1: StoredSchema("PROTOBUF", ORDER, (("shop/line.proto", LINE),)),
        2: StoredSchema("AVRO", '"string"'),
        3: StoredSchema("PROTOBUF", 'syntax = "proto3";\nmessage M { strnig a = 1; }'),
        4: StoredSchema("PROTOBUF", LINE, (("../../escape.proto", LINE),)),
        5: StoredSchema("PROTOBUF", 'syntax = "proto3";\nimport "nobody.proto";\nmessage M {}'),
        6: StoredSchema("PROTOBUF", LINE, (("confluent/meta.proto/a.proto", LINE),)),
        7: StoredSchema("PROTOBUF", LINE, (("a.proto/b.proto", LINE), ("a.proto", LINE))),
    }
)
FORM = ProtobufFormat(KNOWN)
(HEAD,) = headed(1, [b""])
FULL = b"".join(
    [
        b"\x08" + b"\xff" * 9 + b"\x01",  # the largest number
        b"\x12\x01x\x18\x01",
        b"\x2a\x02\x08\x05",  # five seconds
        b"\x32\x08\x0a\x01\xff\x15\xcd\xcc\xcc\x3d",  # 0.1 of 32 bits
        b"\x3a\x05\x0a\x01a\x10\x02",
        b"\x42\x03\x0a\x01n\x50\x07",
    ]
)


def test_every_field_is_there() -> None:
    (text,) = FORM.texts(bodies([HEAD + b"\0" + FULL])).texts.to_pylist()
    assert json.loads(text) == {
        "id": 2**64 - 1,
        "name": "x",
        "state": "PAID",
        "price": None,
        "at": "1970-01-01T00:00:05Z",
        "lines": [{"raw": "/w==", "half": 0.1}],
        "counts": {"a": 2},
        "note": "n",
        "post": None,
        "door": 7,
    }


def test_what_is_not_sent_has_its_default_or_is_null() -> None:
    (text,) = FORM.texts(bodies([HEAD + b"\0"])).texts.to_pylist() or [b""]
    found = json.loads(text)
    assert [found[name] for name in ("id", "name", "state", "lines", "counts")] == [
        0,
        "",
        "NEW",
        [],
        {},
    ]
    assert [found[name] for name in ("price", "at", "note", "post")] == [None] * 4


def test_the_message_type_is_the_one_that_is_named() -> None:
    other, inner = HEAD + b"\x02\x02\x08\x09", HEAD + b"\x04\x00\x00\x08\x01"
    assert FORM.texts(bodies([other, inner])).texts.to_pylist() == [b'{"n":-5}', b'{"yes":true}']


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "does not begin with the byte 0"),
        (b"{}", "does not begin with the byte 0"),
        (b"\0\0\0\0\x09\0", "no schema of the id 9"),
        (b"\0\0\0\0\x02\0", "schema 2 of the registry is of type AVRO, and not Protobuf"),
        (b"\0\0\0\0\x03\0", 'cannot be used: no Protobuf schema: line 2:13: "strnig" is not defin'),
        (b"\0\0\0\0\x04\0", "cannot be used: it refers to a file of the name '../../escape.proto'"),
        (b"\0\0\0\0\x05\0", "cannot be used: no Protobuf schema: nobody.proto: File not found."),
        (b"\0\0\0\0\x05\0", "The schema must have a reference of this name"),
        (b"\0\0\0\0\x06\0", "it refers to a file of the name 'confluent/meta.proto/a.proto'"),
        (b"\0\0\0\0\x07\0", "it refers to a file of the name 'a.proto'"),
        (HEAD + b"\0\xff", "schema 1 of the registry: "),
        (HEAD + b"\x02\x08", "has no message type 4"),
        (HEAD + b"\x80", "ends before its value begins"),
        (HEAD + b"\x01", "the message type is named by nonsense"),
    ],
)
def test_what_is_wrong_is_told(message: bytes, reason: str) -> None:
    found = FORM.columns(bodies([message, None, HEAD + b"\0" + FULL]))
    assert reason in found.refused[0]
    (group,) = found.groups
    assert group.at.tolist() == [2]


def test_files_that_confluents_clients_know_need_no_reference() -> None:
    sent = b"".join(
        [
            b"\x0a\x06\x0a\x02\xcf\xc7\x18\x02",  # -12345 in hundredths
            b"\x12\x07\x08\xe8\x0f\x10\x02\x18\x1d",
            b"\x1a\x07\x0a\x03EUR\x10\x05",
            b"\x22\x10\x0a\x01a\x12\x0b\x0a\x09\x7f" + b"\xff" * 8,  # more than 64 bits
        ]
    )
    assert _read(PAID, sent) == (
        '{"sum":-123.45,"day":{"year":2024,"month":2,"day":29},'
        '"fee":{"currency_code":"EUR","units":5,"nanos":0},'
        f'"parts":{{"a":{2**71 - 1}}},"raw":null}}'
    )


@pytest.mark.parametrize(
    ("sent", "number"),
    [
        (b"\x0a\x00", "0"),
        (b"\x0a\x05\x0a\x01\x05\x18\x03", "0.005"),
        (b"\x0a\x0e\x0a\x01\x05\x18" + b"\xfe" + b"\xff" * 8 + b"\x01", "5E+2"),
    ],
)
def test_decimals_of_any_scale(sent: bytes, number: str) -> None:
    text = 'syntax = "proto3";\nimport "confluent/types/decimal.proto";\n'
    message = "message M { confluent.type.Decimal sum = 1; }"
    assert _read(text + message, sent) == f'{{"sum":{number}}}'


def test_a_reference_of_the_registry_goes_before_the_file_of_that_name() -> None:
    own = 'syntax = "proto3";\npackage confluent.type;\nmessage Decimal { string value = 7; }'
    text = 'syntax = "proto3";\nimport "confluent/type/decimal.proto";\n'
    message = "message M { confluent.type.Decimal sum = 1; }"
    found = _read(text + message, b"\x0a\x03\x3a\x01x", ("confluent/type/decimal.proto", own))
    assert found == '{"sum":{"value":"x"}}'


def _read(schema: str, sent: bytes, *references: tuple[str, str]) -> str:
    form = ProtobufFormat(Known({1: StoredSchema("PROTOBUF", schema, references)}))
    found = form.texts(bodies([HEAD + b"\0" + sent]))
    assert not found.refused
    (text,) = found.texts.to_pylist()
    return (text or b"").decode()


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.binary(max_size=40) | st.none(), max_size=5), st.booleans())
def test_no_bytes_break_the_decoder(sent: list[bytes | None], named: bool) -> None:
    messages = [one if one is None or not named else HEAD + b"\0" + one for one in sent]
    found = FORM.texts(bodies(messages))
    for row, text in enumerate(found.texts.to_pylist()):
        assert (text is None) == (messages[row] is None or row in found.refused)
        assert text is None or isinstance(json.loads(text), dict)
