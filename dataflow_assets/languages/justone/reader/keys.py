"""Every key of JustOne's files, with its verdict: what checking and the reference go by.

A key that is not listed is ignored, as Connect does it, and noted. Those that are known and have no
effect, such as keys about Connect's own process, are one note for each file.
"""

from __future__ import annotations

from collections.abc import Sequence

from dataflow_assets.languages.common.client_keys import CLIENT
from dataflow_assets.languages.common.key_tables import Key

CLASS = "com.justone.kafka.sink.pg.json.PostgreSQLSinkConnector"
CLASSES = frozenset({CLASS, "PostgreSQLSinkConnector", "PostgreSQLSink"})
"""As Connect's workers find it: by its full name, its plain one, or without the ending."""
STRING = "org.apache.kafka.connect.storage.StringConverter"


_NO_STEPS = (
    "single message transforms are not supported in this file: write a DataFlow manifest, whose "
    "transformations change records on their way"
)
CONNECTOR: Sequence[Key] = (
    Key("name", "used", "With the topic the flow's name: `name.topic`.", "required"),
    Key("connector.class", "used", f"`{CLASS}`, or its short names.", "required"),
    Key("topics", "used", "Topics, separated by commas: each is a flow.", "required"),
    Key("topics.regex", "refused", "name the topics in `topics`, separated by commas"),
    Key("tasks.max", "note", "has no effect: each partition is read by a task of Spark", "1"),
    Key("db.host", "used", "`host` or `host:port`; several, separated by commas.", "localhost"),
    Key(
        "db.port",
        "note",
        "is ignored, as Connect does it: write the port into db.host, as in host:5432",
    ),
    Key("db.database", "used", "The database.", "required"),
    Key("db.username", "used", "The user.", "required"),
    Key(
        "db.password",
        "used",
        "The password, or where it is: `${env:VARIABLE}`, or `${secrets:NAMESPACE/NAME:KEY}` for "
        "the key of a Secret. It is read when the flow starts.",
    ),
    Key("db.schema", "used", "The table's schema.", "required"),
    Key("db.table", "used", "The table. It must exist.", "required"),
    Key(
        "db.columns",
        "used",
        "Columns, separated by commas, as PostgreSQL has their names. All others get their "
        "defaults; the original's synchronized delivery stored NULL there.",
        "required",
    ),
    Key(
        "db.json.parse",
        "used",
        "Parse paths, separated by commas, one for each column.",
        "required",
    ),
    Key(
        "db.delivery",
        "note",
        "`fastest` and `guaranteed` are served as `synchronized`: exactly once.",
        "synchronized",
    ),
    Key(
        "db.buffer.size",
        "note",
        "has no effect: rows are sent to PostgreSQL in pieces of at most 50,000 rows and 16 MiB",
    ),
    Key(
        "value.converter",
        "used",
        f"Must be `{STRING}`, here or in the worker's file: no other one hands JSON on as text.",
    ),
    Key(
        "errors.tolerance",
        "used",
        "`none`: the flow stops at a record that cannot be stored. `all`: the record is kept in "
        "`dataflow_rejected`, beside the table. `dataflow.onRejected` wins.",
        "none",
    ),
    Key(
        "errors.deadletterqueue.topic.name",
        "refused",
        "not supported: with dataflow.onRejected=table, rejected records are kept in the table "
        "dataflow_rejected of the same schema",
    ),
    Key("errors.*", "ignored", "Connect's own handling of errors."),
    Key("transforms*", "refused", _NO_STEPS),
    Key("predicates*", "refused", _NO_STEPS),
    Key("key.converter*", "ignored", "Keys are not read."),
    Key("value.converter.*", "ignored", "Messages are JSON text."),
    Key("header.converter*", "ignored", "Headers are not read."),
    Key("config.action.reload", "ignored", "A changed file is always read again."),
)
ADDITIONS: Sequence[Key] = (
    Key(
        "dataflow.onRejected",
        "used",
        "What happens to a record that cannot be stored. `fail`: the flow stops and names it; "
        "`table`: it is kept in `dataflow_rejected`; `skip`: it is counted and logged.",
        "fail",
    ),
    Key(
        "dataflow.maxRejectedPercent",
        "used",
        "The flow stops when it rejects more than this share of its records.",
        "10",
    ),
    Key(
        "dataflow.onDataLoss",
        "used",
        "When retention has removed records that were not read: `fail`, or `continue` with a "
        "warning.",
        "fail",
    ),
    Key(
        "dataflow.onTopicRecreated",
        "used",
        "When the topic was deleted and re-created: `fail`, or `restart` at its beginning.",
        "fail",
    ),
    Key(
        "dataflow.freshness",
        "used",
        "Seconds within which a new record should be visible, 1 to 3600.",
        "10",
    ),
    Key("dataflow.suspended", "used", "`true` suspends the flows of the file.", "false"),
)
CONSUMER: Sequence[Key] = (
    Key("group.id", "used", "The consumer group, instead of `connect-<name>`."),
    Key(
        "auto.offset.reset",
        "used",
        "`earliest`. `latest` is refused: to begin at the end, run once with `--from latest`.",
        "earliest",
    ),
    Key(
        "isolation.level",
        "note",
        "has no effect: only committed records are read",
        "read_committed",
    ),
    *CLIENT,
)
WORKER: Sequence[Key] = (
    Key(
        "bootstrap.servers",
        "used",
        "The brokers, each `host:port`, separated by commas; `consumer.bootstrap.servers` wins.",
        "required",
    ),
    Key("value.converter", "used", "As in the connector's file, which wins."),
    Key("value.converter.*", "ignored", "Messages are JSON text."),
    Key("key.converter*", "ignored", "Keys are not read."),
    Key("header.converter*", "ignored", "Headers are not read."),
    Key("internal.*", "ignored", "Connect's own topics and files."),
    Key("offset.*", "ignored", "Positions are in the table's checkpoint."),
    Key("config.*", "ignored", "Connect's own topics, and providers of values."),
    Key("status.*", "ignored", "Connect's own topics."),
    Key("group.id", "ignored", "The workers' own group; `consumer.group.id` is the consumer's."),
    Key("plugin.*", "ignored", "Classes of Java are not run."),
    Key("rest.*", "ignored", "Connect's own server."),
    Key("listeners", "ignored", "Connect's own server."),
    Key("access.control.*", "ignored", "Connect's own server."),
    Key("admin.*", "ignored", "Another client of Connect's."),
    Key("producer.*", "ignored", "Another client of Connect's."),
    Key("connector.client.config.override.policy", "ignored", "`consumer.override.*` is allowed."),
    Key("task.*", "ignored", "Connect's own process."),
    Key("scheduled.*", "ignored", "Connect's own process."),
    Key("worker.*", "ignored", "Connect's own process."),
    Key("rebalance.*", "ignored", "Connect's own process."),
    Key("topic.*", "ignored", "Connect's own process."),
    Key("metric*", "ignored", "Connect's own process."),
)
