"""Files that Confluent's clients know, so that schemas import them without a reference.

Names and numbers are Confluent's. As text, for only Python travels to Spark's workers.
"""

from __future__ import annotations

from collections.abc import Mapping

_META = """\
syntax = "proto3";
package confluent;

import "google/protobuf/descriptor.proto";

message Meta {
  string doc = 1;
  map<string, string> params = 2;
  repeated string tags = 3;
  repeated Rule rules = 4;
}

message Rule {
  string name = 1;
  string doc = 2;
  string expr = 3;
  string sql = 4;
}

extend google.protobuf.FileOptions {
  Meta file_meta = 1088;
}
extend google.protobuf.MessageOptions {
  Meta message_meta = 1088;
}
extend google.protobuf.FieldOptions {
  Meta field_meta = 1088;
}
extend google.protobuf.EnumOptions {
  Meta enum_meta = 1088;
}
extend google.protobuf.EnumValueOptions {
  Meta enum_value_meta = 1088;
}
"""
"""Options with which schemas of a registry describe themselves."""

_DECIMAL = """\
syntax = "proto3";
package confluent.type;

message Decimal {
  bytes value = 1;
  uint32 precision = 2;
  int32 scale = 3;
}
"""
"""Digits in two's complement, and how many of them are behind the point."""

_VARIANT = """\
syntax = "proto3";
package confluent.type;

message Variant {
  bytes metadata = 1;
  bytes value = 2;
}
"""
"""A value of any type, in the binary form of Parquet."""

_OLD_DECIMAL = """\
syntax = "proto3";

import public "confluent/type/decimal.proto";
"""
"""The name by which older clients import the decimal."""

CONFLUENT: Mapping[str, str] = {
    "confluent/meta.proto": _META,
    "confluent/type/decimal.proto": _DECIMAL,
    "confluent/type/variant.proto": _VARIANT,
    "confluent/types/decimal.proto": _OLD_DECIMAL,
}
"""By the name under which a schema imports it."""
