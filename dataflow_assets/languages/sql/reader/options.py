"""Every option of tables and every SET, with its verdict: what checking and the reference go by.

| verdict | meaning |
|---|---|
| used | does what it says |
| note | accepted; `dataflow check` notes what happens instead |
| ignored | known, and without effect here |
| refused | a finding says why |

An option of a table that is not listed is a finding, as in Flink.
"""

from __future__ import annotations

from collections.abc import Sequence

from dataflow_assets.languages.common.key_tables import Key

KAFKA, UPSERT, JDBC = "kafka", "upsert-kafka", "jdbc"
TABLES = ("postgresql", "clickhouse", "iceberg", JDBC)
"""Sinks of the catalogue that are tables here, too."""
CONNECTORS = (KAFKA, UPSERT, *TABLES)

COMMON: Sequence[Key] = (
    Key("connector", "used", "`kafka` or `upsert-kafka`.", "required"),
    Key(
        "topic", "used", "The topic; a list `a;b` is refused: declare a table for each.", "required"
    ),
    Key("topic-pattern", "refused", "a pattern of topics is not supported: name one in topic"),
    Key(
        "properties.bootstrap.servers",
        "used",
        "The brokers, each `host:port`, separated by commas.",
        "required",
    ),
    Key("properties.group.id", "used", "The consumer group.", "`KafkaSource-<flow>`"),
    Key("properties.*", "used", "See below."),
    Key(
        "value.fields-include",
        "used",
        "`ALL`, or `EXCEPT_KEY`: columns of the key are not part of the value.",
        "ALL",
    ),
    Key(
        "key.fields-prefix",
        "used",
        "The names of the key's columns begin with this prefix in the table, and without it in the "
        "message; needs `EXCEPT_KEY`.",
    ),
    Key(
        "scan.bounded.mode",
        "used",
        "Where a flow ends for good: `unbounded` (never), `timestamp`, or `specific-offsets`, with "
        "which only the named partitions are read. With `latest-offset` each run reads the records "
        "that are there when the run begins. `group-offsets` is refused.",
        "unbounded",
    ),
    Key("scan.bounded.timestamp-millis", "used", "With `scan.bounded.mode` = `timestamp`."),
    Key(
        "scan.bounded.specific-offsets",
        "used",
        "With `scan.bounded.mode` = `specific-offsets`: `partition:0,offset:42;...`.",
    ),
    Key("scan.topic-partition-discovery.interval", "ignored", "New partitions are always found."),
    Key("scan.parallelism", "note", "has no effect: each partition is read by a task of Spark"),
    Key(
        "scan.watermark.*",
        "note",
        "has no effect: watermarks move with micro-batches, and a partition is idle by "
        "table.exec.source.idle-timeout",
    ),
    Key(
        "sink.parallelism",
        "note",
        "has no effect: what a task has read from a partition of the source, it also writes",
    ),
    Key(
        "sink.delivery-guarantee",
        "note",
        "`at-least-once` and `none` are served as `exactly-once`",
        "at-least-once",
    ),
    Key(
        "sink.transactional-id-prefix",
        "note",
        "has no effect: transactional ids begin with dataflow, and are made of the flow's name",
    ),
    Key(
        "sink.transaction-naming-strategy",
        "note",
        "has no effect: transactional ids are the same after each start",
    ),
)
_ONE_OF = "`json`, `csv`, `avro`, `avro-confluent` or `raw`"
ONLY_KAFKA: Sequence[Key] = (
    Key(
        "format",
        "used",
        "`json`, `csv`, `avro`, `avro-confluent` or `raw`, or one of [changes](#changes); the same "
        "as `value.format`.",
        "required",
    ),
    Key("value.format", "used", "The same as `format`."),
    Key(
        "key.format",
        "used",
        "`json`, `csv`, `avro`, `avro-confluent` or `raw`; needs `key.fields`.",
    ),
    Key("key.fields", "used", "The columns of the key, separated by `;`, in their order."),
    Key(
        "scan.startup.mode",
        "used",
        "Where a flow without a checkpoint begins: `group-offsets` (the earliest record where the "
        "group has no offset), `earliest-offset`, `latest-offset`, `timestamp` or "
        "`specific-offsets`.",
        "group-offsets",
    ),
    Key("scan.startup.timestamp-millis", "used", "With `scan.startup.mode` = `timestamp`."),
    Key(
        "scan.startup.specific-offsets",
        "used",
        "With `scan.startup.mode` = `specific-offsets`: `partition:0,offset:42;partition:1,"
        "offset:300`; other partitions begin at the offsets of the group.",
    ),
    Key("sink.partitioner", "used", "`default`: by the key, as Java does (murmur2).", "default"),
)
ONLY_UPSERT: Sequence[Key] = (
    Key("key.format", "used", f"{_ONE_OF}.", "required"),
    Key("value.format", "used", f"{_ONE_OF}.", "required"),
    Key(
        "sink.buffer-flush.max-rows",
        "used",
        "Above zero: of several changes of a key only the last one is written, as long as no more "
        "than so many keys wait. Needs `sink.buffer-flush.interval`.",
        "0",
    ),
    Key(
        "sink.buffer-flush.interval",
        "used",
        "How long a row may wait, such as `1s`. It becomes the flow's `dataflow.freshness`, unless "
        "a SET says otherwise. Needs `sink.buffer-flush.max-rows`.",
        "0",
    ),
)
_IN_TRANSACTIONS = "has no effect: rows are written in the transaction of their slice"
_ATTEMPTS = "has no effect: attempts are the flow's own"
_SINK_ONLY = "has no effect: the table is a sink only"
OF_JDBC: Sequence[Key] = (
    Key("connector", "used", "`jdbc`.", "required"),
    Key(
        "url",
        "used",
        "`jdbc:postgresql://host:port/database`, with the driver's parameters of TLS; other "
        "databases are refused.",
        "required",
    ),
    Key("table-name", "used", "The table, which must exist.", "required"),
    Key("username", "used", "The user."),
    Key("password", "used", "The password, or a reference to it."),
    Key("driver", "ignored", "No Java classes are run."),
    Key(
        "connection.max-retry-timeout", "note", "has no effect: attempts are the flow's own", "60s"
    ),
    Key("sink.buffer-flush.max-rows", "note", _IN_TRANSACTIONS, "100"),
    Key("sink.buffer-flush.interval", "note", _IN_TRANSACTIONS, "1s"),
    Key("sink.max-retries", "note", _ATTEMPTS, "3"),
    Key("sink.parallelism", "note", "has no effect: each slice is written by a task"),
    Key("scan.*", "note", _SINK_ONLY),
    Key("lookup.*", "note", _SINK_ONLY),
    Key("properties.*", "note", "has no effect: parameters are in the url"),
)
_ON_TIMES = (
    "`SQL` (`2020-12-30 12:13:14`) or `ISO-8601` (`2020-12-30T12:13:14`); TIMESTAMP_LTZ ends "
    "in `Z`."
)
FORMATS: Sequence[Key] = (
    Key(
        "json.fail-on-missing-field",
        "used",
        "`true`: a record without a field is rejected. Else the field is null.",
        "false",
    ),
    Key(
        "json.ignore-parse-errors",
        "used",
        "`true`: a field or item that cannot be read is null, a record that is not JSON is left "
        "out, and so is text behind its first value.",
        "false",
    ),
    Key("json.timestamp-format.standard", "used", _ON_TIMES, "SQL"),
    Key(
        "json.map-null-key.mode",
        "used",
        "`FAIL`: a row with a null key in a map is rejected. `DROP` and `LITERAL` are refused.",
        "FAIL",
    ),
    Key(
        "json.map-null-key.literal",
        "refused",
        "belongs to the mode LITERAL, which is not supported",
    ),
    Key(
        "json.encode.decimal-as-plain-number",
        "used",
        "`true`: all digits of the type, no exponents.",
        "false",
    ),
    Key("json.encode.ignore-null-fields", "used", "`true`: null fields are left out.", "false"),
    Key("json.decode.json-parser.enabled", "ignored", "There is one parser."),
    Key("csv.field-delimiter", "used", "One character; `\\t` is a tab.", ","),
    Key("csv.quote-character", "used", "One character.", '`"`'),
    Key("csv.disable-quote-character", "used", "`true`: nothing is quoted.", "false"),
    Key("csv.escape-character", "used", "One character."),
    Key("csv.array-element-delimiter", "used", "Between items of an array.", ";"),
    Key("csv.null-literal", "used", "The text that is null."),
    Key("csv.allow-comments", "used", "`true`: records that begin with `#` are left out.", "false"),
    Key(
        "csv.ignore-parse-errors",
        "used",
        "`true`: a field or item that cannot be read, or is missing, is null; a record that is not "
        "CSV is left out.",
        "false",
    ),
    Key(
        "csv.write-bigdecimal-in-scientific-notation",
        "used",
        "`false`: decimals have all digits of their type, and no exponents.",
        "true",
    ),
    Key("avro.encoding", "used", "`binary`; `json` is refused.", "binary"),
    Key("avro.timestamp_mapping.legacy", "note", "only `true` is supported", "true"),
    Key(
        "avro-confluent.url",
        "used",
        "The schema registry; key and value must have the same one.",
        "required",
    ),
    Key("avro-confluent.schema-registry.url", "used", "The older name of `url`."),
    Key(
        "avro-confluent.subject",
        "used",
        "The subject under which the schema is registered when the table is written.",
        "`<topic>-value`, `<topic>-key`",
    ),
    Key("avro-confluent.schema-registry.subject", "used", "The older name of `subject`."),
    Key("avro-confluent.schema", "refused", "the schema is that of the columns"),
    Key("avro-confluent.auto.register.schemas", "used", "`true`; `false` is refused.", "true"),
    Key("avro-confluent.basic-auth.credentials-source", "used", "`USER_INFO`."),
    Key(
        "avro-confluent.basic-auth.user-info",
        "used",
        "`user:password`; the password may be a reference.",
    ),
    Key("avro-confluent.bearer-auth.credentials-source", "used", "`STATIC_TOKEN`."),
    Key("avro-confluent.bearer-auth.token", "used", "A token, or a reference to it."),
    Key(
        "avro-confluent.ssl.*",
        "refused",
        "Java's key stores are not read: write a DataFlow manifest with schemaRegistry.tls",
    ),
    Key("avro-confluent.properties.*", "note", "has no effect: the client is the product's own"),
    Key("raw.charset", "used", "The character set of texts.", "UTF-8"),
    Key(
        "raw.endianness",
        "used",
        "The order of a number's bytes: `big-endian` or `little-endian`.",
        "big-endian",
    ),
)
CONFLUENT = "avro-confluent"
KINDS = ("json", "csv", "avro", CONFLUENT, "raw")
OTHER_KINDS = {
    "ogg-json": "is not supported: of changes debezium-json, canal-json and maxwell-json are read",
    "protobuf": "is not supported in SQL: write a DataFlow manifest",
}


def of_connector(connector: str) -> Sequence[Key]:
    """The options of a connector, without those of its formats."""
    if connector == JDBC:
        return OF_JDBC
    return (*COMMON, *(ONLY_UPSERT if connector == UPSERT else ONLY_KAFKA))
