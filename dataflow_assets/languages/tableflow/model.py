"""WarpStream Tableflow's file: every key, each with its verdict."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, field_validator

from dataflow_assets.connectors.iceberg.layout import parse_term
from dataflow_assets.connectors.iceberg.options import RECORD_TIME
from dataflow_assets.formats.schema_registry import address_problem
from dataflow_assets.languages.common.keys import suggest
from dataflow_assets.languages.tableflow.places import Bucket
from dataflow_assets.languages.tableflow.types import PRIMITIVES, problem, usual
from dataflow_assets.spec import Addition, OneOrMany, Refused, Spec

LARGEST_ID = 1_999_999_999  # ids above are for columns of our own


_NO_PROTOBUF = (
    "files of Tableflow are read with topics in JSON and Avro; a DataFlow manifest reads Protobuf "
    "by its registry: format: protobuf with schemaRegistry, and a sink iceberg"
)
_NO_INPUT_SCHEMA = (
    "a table has the columns of `schema`, whose ids are those of the Iceberg table: list them "
    "there, or put the schema into a registry and set schema_mode: registry"
)
_RETENTION = re.compile(r"([1-9]\d{0,5})([hd])")


def duration(text: str) -> timedelta:
    match = _RETENTION.fullmatch(text)
    if match is None:
        raise ValueError("must be hours or days, such as 12h or 30d")
    return timedelta(hours=int(match[1]) * (24 if match[2] == "d" else 1))


class TableflowSpec(Spec):
    """Keys are spelled as here."""

    model_config = ConfigDict(alias_generator=None)


def _of_shape(pattern: str, sentence: str) -> AfterValidator:
    def check(value: str) -> str:
        if re.fullmatch(pattern, value) is None:
            raise ValueError(sentence)
        return value

    return AfterValidator(check)


_Name = Annotated[
    str, _of_shape(r"[A-Za-z0-9._-]{1,100}", "must be letters a-z, digits, `.`, `_` and `-`")
]
_Variable = Annotated[
    str,
    _of_shape(
        r"[A-Za-z_][A-Za-z0-9_]*",
        "must be the name of an environment variable: letters a-z, digits and `_`, no digit first",
    ),
]


class TableflowBroker(TableflowSpec):
    """One broker."""

    hostname: Annotated[str, _of_shape(r"[^\s:,/]+", "must be a host's name or address, no port")]
    """Host name or address."""
    port: int = Field(9092, ge=1, le=65535)
    """Port."""


class Credentials(TableflowSpec):
    """Encryption and authentication.

    A key that ends in `_env` names an environment variable, `NAME`. The value is that of the
    variable `TABLEFLOW_NAME` or, where that is not set, of `NAME`; it is read when the flow runs.
    """

    use_tls: bool = False
    """Encrypt the connection."""
    tls_insecure_skip_verify: bool = False
    """Do not check the brokers' certificates; ignored where `mtls_server_ca_cert_env` is given."""
    sasl_username_env: _Variable | None = None
    """Variable with the user name."""
    sasl_password_env: _Variable | None = None
    """Variable with the password."""
    sasl_mechanism: Literal["plain", "scram-256", "scram-512"] = "plain"
    """The SASL mechanism."""
    mtls_client_cert_env: _Variable | None = None
    """Variable with the absolute path of the client's certificate in PEM, or with its text."""
    mtls_client_key_env: _Variable | None = None
    """Variable with the path of the client's key in PEM, or with its text."""
    mtls_server_ca_cert_env: _Variable | None = None
    """Variable with the path of the CA certificates in PEM, or with their text; without it the
    system's own are trusted."""


class Registry(TableflowSpec):
    """The schema registry of a cluster's topics, which answers in Confluent's API.

    Variables are named as in `credentials`.
    """

    url: str
    """Its address, such as `https://registry:8081`."""
    username_env: _Variable | None = None
    """Variable with the user name."""
    password_env: _Variable | None = None
    """Variable with the password."""
    bearer_token_env: _Variable | None = None
    """Variable with a token, sent instead of user and password."""
    tls_insecure_skip_verify: bool = False
    """Do not check the registry's certificate; ignored where `mtls_server_ca_cert_env` is given."""
    mtls_client_cert_env: _Variable | None = None
    """Variable with the absolute path of the client's certificate in PEM, or with its text."""
    mtls_client_key_env: _Variable | None = None
    """Variable with the path of the client's key in PEM, or with its text."""
    mtls_server_ca_cert_env: _Variable | None = None
    """Variable with the path of the CA certificates in PEM, or with their text; without it the
    system's own are trusted."""

    @field_validator("url")
    @classmethod
    def _reachable(cls, value: str) -> str:
        if wrong := address_problem(value):
            raise ValueError(wrong)
        return value


class SourceCluster(TableflowSpec):
    """A Kafka cluster."""

    name: _Name
    """The names of its tables begin with it: **renaming a cluster creates new tables**, which begin
    at the oldest records."""
    bootstrap_brokers: tuple[TableflowBroker, ...] = Field(min_length=1)
    """One or more of its brokers; they name the others."""
    credentials: Credentials | None = None
    """Encryption and authentication; without it there is neither."""
    schema_registry: Annotated[Registry | None, Addition()] = None
    """Where the schemas of its topics are; tables with `schema_mode: registry` need it."""


class SchemaField(TableflowSpec):
    """A column, or a field inside one."""

    name: str = Field(min_length=1)
    """Its name. The one field of a `list` must be called `element`, the fields of a `map` `key` and
    `value`."""
    id: int = Field(ge=1, le=LARGEST_ID)
    """The field id in the Iceberg table; unique in the table."""
    type: str
    """`boolean`, `int`, `long`, `float`, `double`, `string`, `binary`, `date`, `time`, `timestamp`,
    `timestamptz`, `decimal(p, s)`; `uuid` and `fixed[n]` (for columns, not inside one); or
    `struct`, `list`, `map`."""
    optional: bool = False
    """`true`: the value may be null or missing. `false`: a record without the value is a rejected
    record."""
    fields: tuple[SchemaField, ...] = ()
    """The fields inside a `struct`, `list` or `map`."""

    @field_validator("type")
    @classmethod
    def _check_known(cls, value: str) -> str:
        if wrong := problem(value):
            usual_name = usual(value)
            advice = f"write {usual_name}" if usual_name else suggest(value, PRIMITIVES)
            raise ValueError(f"{wrong}; {advice}")
        return value


class TableSchema(TableflowSpec):
    """The columns of a table, and the fields of its records."""

    fields: tuple[SchemaField, ...] = Field(min_length=1)
    """The columns. These changes are possible later: a new optional column, a column that becomes
    `optional`, `int` to `long`, `float` to `double`. Any other change is a finding."""


class TableflowTable(TableflowSpec):
    """One topic and its table, which is called `<cluster>+<topic>`."""

    source_cluster_name: str
    """The `name` of a cluster of this file."""
    source_topic: Annotated[
        str, _of_shape(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}", "must be the name of a topic")
    ]
    """The topic. It is read from its oldest record."""
    source_format: Annotated[
        Literal["json", "avro", "protobuf"], Refused(_NO_PROTOBUF, allowed=("json", "avro"))
    ]
    """`json`: keys that are not columns are left out. `avro`: `schema` must describe the schema of
    the writer: fields in the same order, an optional field where the writer has a union whose first
    type is null. A magic byte and schema id at the beginning of a message are removed; a message
    that begins with the byte 0, and does not fit the schema without its first five bytes, is
    decoded as a whole. `protobuf` is refused."""
    wire_format: Literal["raw"] | None = None
    """`raw`, for `json` alone: a message is its JSON alone, as without the key."""
    schema_mode: Literal["inline", "registry"] = "inline"
    """`inline`: the columns are those of `schema`. `registry` (an addition): the columns are the
    fields of all versions of a subject in the `schema_registry` of the cluster. With
    `source_format: avro` each message is decoded with the schema whose id it begins with. With
    `json` the subject has JSON Schemas, and an id at the beginning of a message is removed."""
    schema_: TableSchema | None = Field(None, alias="schema")
    """The columns; required with `inline`, and not allowed with `registry`."""
    input_schema: Annotated[str | None, Refused(_NO_INPUT_SCHEMA)] = None
    """The schema of the records as one text: a JSON Schema, or a `.proto` file."""
    schema_subject: Annotated[str | None, Addition()] = Field(None, min_length=1)
    """With `schema_mode: registry`: the subject; by default `<topic>-value`."""
    partitioning_scheme: Literal["unpartitioned", "hour"] = "unpartitioned"
    """`hour`: the table is partitioned by the hour of the record's own time, which is in the column
    `_record_timestamp`. The key cannot be changed once the table exists."""
    partition_by: Annotated[tuple[str, ...], OneOrMany, Addition()] = ()
    """Instead of `partitioning_scheme`: any partition transforms of Iceberg, such as
    `day(_record_timestamp)`, `bucket(16, user_id)`, `truncate(4, country)`, `year(..)`,
    `month(..)`, `hour(..)`, or a column. The key cannot be changed once the table exists."""
    compression: Literal["zstd"] = "zstd"
    """How data files are compressed: there is one way."""
    dlq_mode: Literal["skip", "stop"] = "skip"
    """What happens to a record that cannot be stored. `skip`: the others go on, and it is kept
    beside the table, as a rejected record. `stop`: the flow stops at it."""
    retention: Annotated[str | None, Addition()] = None
    """How old a record may be, such as `12h` or `30d`. A file is removed from the table once all of
    its rows are older; this happens while the flow commits. The table must be partitioned by the
    time of the records, `_record_timestamp`."""
    upsert_key: Annotated[tuple[str, ...], OneOrMany, Addition()] = ()
    """For compacted topics: a row replaces the row with the same values in these columns, and a
    null message (tombstone) deletes the row of its key. Keys of messages must be JSON objects with
    these columns or, if there is only one column, its plain value. `upsert_key` cannot be changed
    once the table exists."""

    @field_validator("partition_by")
    @classmethod
    def _terms(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            parse_term(text)
        return value

    @field_validator("retention")
    @classmethod
    def _duration(cls, value: str | None) -> str | None:
        if value is not None:
            duration(value)
        return value

    @property
    def fields(self) -> tuple[SchemaField, ...]:
        """The columns that the file declares; none where a registry has them."""
        return self.schema_.fields if self.schema_ else ()

    @property
    def subject(self) -> str:
        return self.schema_subject or f"{self.source_topic}-value"

    @property
    def partitions(self) -> tuple[str, ...]:
        if self.partitioning_scheme == "hour":
            return (f"hour({RECORD_TIME})",)
        return self.partition_by

    @property
    def keeps_time(self) -> bool:
        """Returns whether the table has a column with the time of the records."""
        return any(parse_term(text).column == RECORD_TIME for text in self.partitions)


class Tableflow(TableflowSpec):
    """The whole file."""

    source_clusters: tuple[SourceCluster, ...] = Field(min_length=1)
    """The Kafka clusters that the topics are in."""
    tables: tuple[TableflowTable, ...] = ()
    """The topics, each with its table. When an entry is removed, its table stays in the bucket."""
    destination_bucket_url: str
    """`s3://bucket`, with `?region=` and `&prefix=` where needed; or `file:///folder` (an
    addition), below the folder DATAFLOW_FILES. Tables are in `<prefix>/warpstream/_tableflow/`."""

    @field_validator("destination_bucket_url")
    @classmethod
    def _readable(cls, value: str) -> str:
        Bucket.parse(value)
        return value
