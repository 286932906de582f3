"""Every key of the sinks' files, with its verdict: what checking and the reference go by.

Where two connectors have one key, each has a row of its own. A key that is not listed is ignored,
as Connect does it, and noted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dataflow_assets.manifests.dialects.key_tables import Key

DEBEZIUM = "io.debezium.connector.jdbc.JdbcSinkConnector"
CONFLUENT = "io.confluent.connect.jdbc.JdbcSinkConnector"
ICEBERG = "org.apache.iceberg.connect.IcebergSinkConnector"
TABULAR = "io.tabular.iceberg.connect.IcebergSinkConnector"

_SPARK = "has no effect: each partition is read by a task of Spark"
_COLUMNS = "a new field is a rejected record until the table has its column: nothing adds columns"
_BY_RECORD = "each record would choose its table: write the table's name, or a flow for each table"
_NO_PREDICATES = "predicates but RecordIsTombstone of a Filter are not supported"
_ONE_COMMIT = "A slice of a micro-batch is one commit."
COMMON: Sequence[Key] = (
    Key("name", "used", "With the topic the flow's name: `name.topic`.", "required"),
    Key("connector.class", "used", "Which of the connectors it is.", "required"),
    Key("topics", "used", "Topics, separated by commas: each is a flow.", "required"),
    Key("topics.regex", "refused", "name the topics in `topics`, separated by commas"),
    Key("tasks.max", "note", _SPARK, "1"),
    Key("tasks.max.enforce", "ignored", "Tasks are Spark's."),
    Key(
        "value.converter",
        "used",
        "`JsonConverter` or `AvroConverter`, here or in the worker's file.",
        "required",
    ),
    Key("value.converter.*", "used", "See [converters](#converters)."),
    Key(
        "key.converter",
        "used",
        "With keys of records: `JsonConverter`, `StringConverter` or "
        "`AvroConverter`, here or in the worker's file.",
    ),
    Key("key.converter.*", "used", "See [converters](#converters)."),
    Key("header.converter*", "ignored", "Headers are not read."),
    Key("transforms", "used", "See [transforms](#transforms)."),
    Key("transforms.*", "used", "See [transforms](#transforms)."),
    Key("predicates", "used", f"Names of predicates; {_NO_PREDICATES}."),
    Key("predicates.*", "used", f"Of them; {_NO_PREDICATES}."),
    Key(
        "errors.tolerance",
        "used",
        "`none`: the flow stops at a record that cannot be stored. `all`: the record is kept, in "
        "the topic of `errors.deadletterqueue.topic.name`, else beside the table. "
        "`dataflow.onRejected` wins.",
        "none",
    ),
    Key(
        "errors.deadletterqueue.topic.name",
        "used",
        "With `errors.tolerance=all`: the topic of rejected records; each has its reason in its "
        "headers.",
    ),
    Key("errors.deadletterqueue.topic.replication.factor", "used", "Of a topic that is made.", "3"),
    Key("errors.*", "ignored", "Connect's own handling of errors; reasons are always kept."),
    Key("config.action.reload", "ignored", "A changed file is always read again."),
    Key("exactly.once.support", "ignored", "Every record is stored exactly once."),
)
_JDBC: Sequence[Key] = (
    Key(
        "connection.url",
        "used",
        "`jdbc:postgresql://host:port/database`, with parameters of its driver for TLS and "
        "`currentSchema`.",
        "required",
    ),
    Key(
        "connection.password",
        "used",
        "The password, or where it is: `${env:VARIABLE}`, or `${secrets:NAMESPACE/NAME:KEY}` for "
        "the key of a Secret. It is read when the flow starts.",
    ),
    Key("insert.mode", "used", "`insert` appends, `upsert` replaces by the key.", "insert"),
    Key(
        "delete.enabled",
        "used",
        "`true`: a null message, or an event that deletes, deletes the row of its key; needs "
        "`upsert` and keys from `record_key`.",
        "false",
    ),
    Key("batch.size", "ignored", _ONE_COMMIT),
)
OF_DEBEZIUM: Sequence[Key] = (
    *_JDBC,
    Key("connection.username", "used", "The user.", "required"),
    Key("connection.pool.*", "ignored", "Sessions are the product's own."),
    Key("connection.provider", "ignored", "Sessions are the product's own."),
    Key("connection.restart.on.errors", "ignored", "A broken connection is made again."),
    Key("hibernate.*", "ignored", "Sessions are the product's own."),
    Key(
        "primary.key.mode",
        "used",
        "`none`, `kafka`, `record_key` or `record_value`; `record_header` is refused.",
        "none",
    ),
    Key("primary.key.fields", "used", "Fields of the key, separated by commas."),
    Key(
        "collection.name.format",
        "used",
        "The table: `name` or `schema.name`, with `${topic}`, whose dots become underscores.",
        "${topic}",
    ),
    Key("table.name.format", "used", "The older name of `collection.name.format`.", "${topic}"),
    Key(
        "schema.evolution",
        "used",
        f"`basic` makes a missing table from the first records; {_COLUMNS}.",
        "none",
    ),
    Key(
        "quote.identifiers",
        "used",
        "`true`: names are as they are written; else in lower case, and columns are matched in "
        "any case.",
        "false",
    ),
    Key("truncate.enabled", "used", "`false`: an event that empties a table is rejected.", "false"),
    Key("use.time.zone", "used", "Must be UTC.", "UTC"),
    Key("database.time_zone", "used", "The older name of `use.time.zone`.", "UTC"),
    Key("table.naming.strategy", "refused", "classes of Java are not run: write the table's name"),
    Key("collection.naming.strategy", "refused", "classes of Java are not run: write the name"),
    Key("column.naming.*", "refused", "classes of Java are not run: rename by ReplaceField"),
    Key("field.include.list", "refused", "choose fields by the transform ReplaceField"),
    Key("field.exclude.list", "refused", "leave fields out by the transform ReplaceField"),
    Key("use.reduction.buffer", "ignored", "Rows of one key are always folded."),
    Key("flush.*", "ignored", "Failed commits are repeated."),
    Key("dialect.*", "ignored", "The dialect is PostgreSQL's."),
)
OF_CONFLUENT: Sequence[Key] = (
    *_JDBC,
    Key("connection.user", "used", "The user.", "required"),
    Key("connection.attempts", "ignored", "A broken connection is made again."),
    Key("connection.backoff.ms", "ignored", "A broken connection is made again."),
    Key("connection.*", "refused", "write settings of the driver into connection.url"),
    Key("pk.mode", "used", "`none`, `kafka`, `record_key` or `record_value`.", "none"),
    Key("pk.fields", "used", "Fields of the key, separated by commas."),
    Key(
        "table.name.format",
        "used",
        "The table: `name` or `schema.name`, with `${topic}`; dots divide, as there.",
        "${topic}",
    ),
    Key("topic2table.map", "used", "`topic:table`, separated by commas; wins over the format."),
    Key("fields.whitelist", "used", "The fields that are stored, besides those of the key."),
    Key("auto.create", "used", "`true`: makes a missing table from the first records.", "false"),
    Key("auto.evolve", "note", _COLUMNS, "false"),
    Key("quote.sql.identifiers", "used", "Must be `always`.", "always"),
    Key("db.timezone", "used", "Must be UTC.", "UTC"),
    Key("db.timezone.date", "ignored", "A date is a day, in any zone."),
    Key("dialect.name", "ignored", "The dialect is that of connection.url."),
    Key("max.retries", "ignored", "Failed commits are repeated."),
    Key("retry.backoff.ms", "ignored", "Failed commits are repeated."),
    Key("table.types", "ignored", "Whatever takes rows."),
    Key("mssql.*", "ignored", "Of another database."),
    Key("trim.sensitive.log", "ignored", "No value is ever logged."),
    Key("confluent.*", "ignored", "Licences."),
)
OF_ICEBERG: Sequence[Key] = (
    Key("iceberg.tables", "used", "`namespace.table`, separated by commas.", "required"),
    Key("iceberg.tables.route-field", "used", "The field that chooses the table."),
    Key("iceberg.tables.dynamic-enabled", "used", f"Must be `false`: {_BY_RECORD}.", "false"),
    Key("iceberg.tables.default-id-columns", "used", "The key, where rows are upserted."),
    Key("iceberg.tables.upsert-mode-enabled", "used", "`true`: rows replace by key.", "false"),
    Key("iceberg.tables.default-partition-by", "used", "Partitions of a table that is made."),
    Key("iceberg.tables.auto-create-enabled", "used", "Makes a missing table.", "false"),
    Key(
        "iceberg.tables.evolve-schema-enabled",
        "used",
        f"`false`: fields without a column are left out. `true`: {_COLUMNS}.",
        "false",
    ),
    Key("iceberg.tables.schema-case-insensitive", "used", "Columns match in any case.", "false"),
    Key("iceberg.tables.schema-force-optional", "ignored", "Columns are made optional."),
    Key("iceberg.tables.replace-null-with-default", "ignored", "A null stays null."),
    Key(
        "iceberg.tables.cdc-field",
        "refused",
        "unwrap events by ExtractNewRecordState, and use "
        "upsert-mode-enabled; a DataFlow manifest can delete rows, too",
    ),
    Key("iceberg.tables.default-commit-branch", "refused", "rows are committed to main only"),
    Key("iceberg.tables.auto-create-props.*", "note", "has no effect: set them in the catalog"),
    Key("iceberg.tables.write-props.*", "note", "has no effect: set them in the table"),
    Key("iceberg.table.*", "used", "`<table>.route-regex`, `.id-columns` and `.partition-by`."),
    Key("iceberg.control.topic", "used", "Looked at when the flow takes over.", "control-iceberg"),
    Key("iceberg.control.commit.interval-ms", "used", "The least time between two commits."),
    Key("iceberg.control.*", "ignored", "Nothing is written to the control topic."),
    Key("iceberg.coordinator.*", "ignored", "Nothing is written to the control topic."),
    Key("iceberg.connect.group-id", "used", "The consumer group, instead of `connect-<name>`."),
    Key("iceberg.kafka.*", "ignored", "The control topic is reached as the consumer is."),
    Key("iceberg.hadoop*", "ignored", "Files are reached by S3."),
    Key("iceberg.catalog", "ignored", "The catalog's name in Java."),
    Key("iceberg.catalog.type", "used", "Must be `rest`.", "required"),
    Key("iceberg.catalog.catalog-impl", "used", "Must be `org.apache.iceberg.rest.RESTCatalog`."),
    Key("iceberg.catalog.uri", "used", "The catalog's address.", "required"),
    Key("iceberg.catalog.warehouse", "used", "The warehouse."),
    Key("iceberg.catalog.prefix", "used", "The path of its API."),
    Key("iceberg.catalog.token", "used", "A bearer token, or where it is, as `${env:VARIABLE}`."),
    Key("iceberg.catalog.credential", "used", "`client:secret`; each may be `${env:VARIABLE}`."),
    Key("iceberg.catalog.scope", "used", "Of the token.", "catalog"),
    Key("iceberg.catalog.oauth2-server-uri", "used", "Where tokens are fetched."),
    Key("iceberg.catalog.s3.endpoint", "used", "Of the files."),
    Key("iceberg.catalog.s3.access-key-id", "used", "Of the files; may be `${env:VARIABLE}`."),
    Key("iceberg.catalog.s3.secret-access-key", "used", "Of the files; may be `${env:VARIABLE}`."),
    Key("iceberg.catalog.s3.path-style-access", "used", "`endpoint/bucket/key`.", "false"),
    Key("iceberg.catalog.client.region", "used", "Of the files."),
    Key("iceberg.catalog.s3.region", "used", "Of the files."),
    Key("iceberg.catalog.io-impl", "ignored", "Files are reached by S3."),
    Key("iceberg.catalog.s3.*", "ignored", "Files are reached by the product's own client."),
    Key("iceberg.catalog.client.*", "ignored", "The catalog is reached by the product's client."),
    Key(
        "iceberg.catalog.*",
        "refused",
        "is not supported for this catalog: remove it, or write a DataFlow manifest",
    ),
    Key(
        "iceberg.*",
        "refused",
        "is no key of this connector that is known here: remove it, or "
        "write it as current versions do",
    ),
)
CONNECTORS: Mapping[str, Sequence[Key]] = {
    DEBEZIUM: OF_DEBEZIUM,
    CONFLUENT: OF_CONFLUENT,
    ICEBERG: OF_ICEBERG,
    TABULAR: OF_ICEBERG,
}
"""By the class that a file names, the keys that it has besides those of Connect."""
