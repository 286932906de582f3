"""Every key of the sinks' files, with its verdict: what checking and the reference go by.

A key that is not listed is ignored, as Connect does it, and noted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dataflow_assets.languages.common.key_tables import Key

DEBEZIUM = "io.debezium.connector.jdbc.JdbcSinkConnector"
CONFLUENT = "io.confluent.connect.jdbc.JdbcSinkConnector"
ICEBERG = "org.apache.iceberg.connect.IcebergSinkConnector"
TABULAR = "io.tabular.iceberg.connect.IcebergSinkConnector"

_COLUMNS = "a record with a new field is rejected until somebody adds the column"
_CLASSES = "classes of Java are not run: write the table's name, rename by ReplaceField"
_FIELDS = "choose fields by the transform ReplaceField"
_REFERENCE = "may be `${env:VARIABLE}` or `${secrets:NAMESPACE/NAME:KEY}`"
_OWN = "The product's own sessions, retries and commits."
_CONTROL = "Nothing is written to the control topic."
_CDC = "unwrap events by ExtractNewRecordState; a DataFlow manifest can delete rows, too"
COMMON: Sequence[Key] = (
    Key("name", "used", "With the topic the flow's name: `name.topic`.", "required"),
    Key("connector.class", "used", "Which of the connectors it is.", "required"),
    Key("topics", "used", "Topics, separated by commas: each is a flow.", "required"),
    Key("topics.regex", "refused", "name the topics in `topics`, separated by commas"),
    Key("tasks.max", "note", "has no effect: each partition is read by a task of Spark", "1"),
    Key("value.converter", "used", "Here or in the worker's file: see Converters.", "required"),
    Key("value.converter.*", "used", "See Converters."),
    Key("key.converter", "used", "For keys of records, here or in the worker's file."),
    Key("key.converter.*", "used", "See Converters."),
    Key("header.converter*", "ignored", "Headers are not read."),
    Key("transforms", "used", "See Transforms."),
    Key("transforms.*", "used", "See Transforms."),
    Key("predicates", "used", "See Transforms."),
    Key("predicates.*", "used", "See Transforms."),
    Key(
        "errors.tolerance",
        "used",
        "`none`: the flow stops at a record that cannot be stored. `all`: the record is kept, in "
        "the topic of dead letters, else beside the table. `dataflow.onRejected` wins.",
        "none",
    ),
    Key("errors.deadletterqueue.topic.name", "used", "With `errors.tolerance=all`."),
    Key("errors.deadletterqueue.topic.replication.factor", "used", "Of a topic that is made.", "3"),
    Key("errors.*", "ignored", "Reasons are always kept, in headers."),
    Key("config.action.reload", "ignored", "A changed file is always read again."),
)
_JDBC: Sequence[Key] = (
    Key(
        "connection.url",
        "used",
        "`jdbc:postgresql://host:port/database`; `mysql` and `mariadb` too.",
        "required",
    ),
    Key("connection.password", "used", f"The password; {_REFERENCE}."),
    Key("insert.mode", "used", "`insert` appends, `upsert` replaces rows by key.", "insert"),
    Key("delete.enabled", "used", "`true`: null messages and events delete rows.", "false"),
    Key("batch.size", "ignored", _OWN),
)
OF_DEBEZIUM: Sequence[Key] = (
    *_JDBC,
    Key("connection.username", "used", "The user.", "required"),
    Key("connection.*", "ignored", _OWN),
    Key("hibernate.*", "ignored", _OWN),
    Key("primary.key.mode", "used", "`none`, `kafka`, `record_key`, `record_value`.", "none"),
    Key("primary.key.fields", "used", "Fields of the key, separated by commas."),
    Key("collection.name.format", "used", "The table; a topic's dots become `_`.", "${topic}"),
    Key("table.name.format", "used", "The older name of the same.", "${topic}"),
    Key("schema.evolution", "used", f"`basic` makes a missing table; {_COLUMNS}.", "none"),
    Key("quote.identifiers", "used", "`false`: tables in lower case, columns in any.", "false"),
    Key("truncate.enabled", "used", "Must be `false`.", "false"),
    Key("use.time.zone", "used", "Must be UTC.", "UTC"),
    Key("database.time_zone", "used", "The older name of the same.", "UTC"),
    Key("table.naming.strategy", "refused", _CLASSES),
    Key("collection.naming.strategy", "refused", _CLASSES),
    Key("column.naming.*", "refused", _CLASSES),
    Key("field.include.list", "refused", _FIELDS),
    Key("field.exclude.list", "refused", _FIELDS),
    Key("use.reduction.buffer", "ignored", _OWN),
    Key("flush.*", "ignored", _OWN),
    Key("dialect.*", "ignored", "The address tells the dialect."),
)
OF_CONFLUENT: Sequence[Key] = (
    *_JDBC,
    Key("connection.user", "used", "The user.", "required"),
    Key("connection.attempts", "ignored", _OWN),
    Key("connection.backoff.ms", "ignored", _OWN),
    Key("connection.*", "refused", "write settings of the driver into connection.url"),
    Key("pk.mode", "used", "`none`, `kafka`, `record_key` or `record_value`.", "none"),
    Key("pk.fields", "used", "Fields of the key, separated by commas."),
    Key("table.name.format", "used", "The table; dots divide schema and table.", "${topic}"),
    Key("topic2table.map", "used", "`topic:table`, separated by commas; wins over the format."),
    Key("fields.whitelist", "used", "The fields that are stored, besides those of the key."),
    Key("auto.create", "used", "`true`: makes a missing table from the first records.", "false"),
    Key("auto.evolve", "note", _COLUMNS, "false"),
    Key("quote.sql.identifiers", "used", "Must be `always`.", "always"),
    Key("db.timezone", "used", "Must be UTC.", "UTC"),
    Key("db.timezone.date", "ignored", "A date is a day, in any zone."),
    Key("dialect.name", "ignored", "The address tells the dialect."),
    Key("max.retries", "ignored", _OWN),
    Key("retry.backoff.ms", "ignored", _OWN),
)
OF_ICEBERG: Sequence[Key] = (
    Key("iceberg.tables", "used", "`namespace.table`, separated by commas.", "required"),
    Key("iceberg.tables.route-field", "used", "The field that chooses among several tables."),
    Key("iceberg.table.*", "used", "`TABLE.route-regex`, `.id-columns`, `.partition-by`."),
    Key("iceberg.tables.dynamic-enabled", "used", "Must be `false`.", "false"),
    Key("iceberg.tables.default-id-columns", "used", "The key, where rows are upserted."),
    Key(
        "iceberg.tables.upsert-mode-enabled",
        "used",
        "`true`: rows replace by key, in the older connector alone: Apache's appends all the same, "
        "so it is refused there.",
        "false",
    ),
    Key("iceberg.tables.default-partition-by", "used", "Of a table that is made."),
    Key("iceberg.tables.auto-create-enabled", "used", "Makes a missing table.", "false"),
    Key(
        "iceberg.tables.evolve-schema-enabled",
        "used",
        f"`false`: fields without a column are left out. `true`: {_COLUMNS}.",
        "false",
    ),
    Key("iceberg.tables.schema-case-insensitive", "used", "Columns match in any case.", "false"),
    Key("iceberg.tables.schema-force-optional", "ignored", "Columns are always optional."),
    Key("iceberg.tables.replace-null-with-default", "ignored", "A null stays null."),
    Key("iceberg.tables.cdc-field", "refused", _CDC),
    Key("iceberg.tables.default-commit-branch", "refused", "rows are committed to main only"),
    Key("iceberg.tables.auto-create-props.*", "note", "has no effect: set them in the catalog"),
    Key("iceberg.tables.write-props.*", "note", "has no effect: set them in the table"),
    Key("iceberg.control.topic", "used", "Looked at when it takes over.", "control-iceberg"),
    Key(
        "iceberg.control.commit.interval-ms",
        "used",
        "The least time between two commits; without it `dataflow.freshness` counts.",
    ),
    Key("iceberg.control.*", "ignored", _CONTROL),
    Key("iceberg.coordinator.*", "ignored", _CONTROL),
    Key("iceberg.kafka.*", "ignored", _CONTROL),
    Key("iceberg.connect.group-id", "used", "The consumer group, instead of `connect-<name>`."),
    Key("iceberg.hadoop*", "ignored", "Files are reached by S3."),
    Key("iceberg.catalog", "ignored", "The catalog's name in Java."),
    Key("iceberg.catalog.type", "used", "Must be `rest`.", "required"),
    Key("iceberg.catalog.catalog-impl", "used", "Must be `org.apache.iceberg.rest.RESTCatalog`."),
    Key("iceberg.catalog.uri", "used", "The catalog's address.", "required"),
    Key("iceberg.catalog.warehouse", "used", "The warehouse."),
    Key("iceberg.catalog.prefix", "used", "The path of its API."),
    Key("iceberg.catalog.token", "used", f"A bearer token; {_REFERENCE}."),
    Key("iceberg.catalog.credential", "used", f"`client:secret`; each {_REFERENCE}."),
    Key("iceberg.catalog.scope", "used", "Of the token.", "catalog"),
    Key("iceberg.catalog.oauth2-server-uri", "used", "Where tokens are fetched."),
    Key("iceberg.catalog.s3.endpoint", "used", "Of the files."),
    Key("iceberg.catalog.s3.access-key-id", "used", f"Of the files; {_REFERENCE}."),
    Key("iceberg.catalog.s3.secret-access-key", "used", f"Of the files; {_REFERENCE}."),
    Key("iceberg.catalog.s3.path-style-access", "used", "`endpoint/bucket/key`.", "false"),
    Key("iceberg.catalog.client.region", "used", "Of the files."),
    Key("iceberg.catalog.s3.region", "used", "Of the files."),
    Key("iceberg.catalog.io-impl", "ignored", "Files are reached by S3."),
    Key("iceberg.catalog.s3.*", "ignored", _OWN),
    Key("iceberg.catalog.client.*", "ignored", _OWN),
    Key("iceberg.*", "refused", "is not known here: remove it, or correct it"),
)
CONNECTORS: Mapping[str, Sequence[Key]] = {
    DEBEZIUM: OF_DEBEZIUM,
    CONFLUENT: OF_CONFLUENT,
    ICEBERG: OF_ICEBERG,
    TABULAR: (Key("iceberg.control.group-id", "used", "The group of its offsets."), *OF_ICEBERG),
}
"""By the class that a file names, the keys that it has besides those of Connect."""
REFERABLE = (
    "connection.password",
    "iceberg.catalog.token",
    "iceberg.catalog.credential",
    "iceberg.catalog.s3.access-key-id",
    "iceberg.catalog.s3.secret-access-key",
)
"""Whose values may be references to where they are kept."""
