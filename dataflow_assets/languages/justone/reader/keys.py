"""Every key of JustOne's files, with its verdict: what checking and the reference go by.

A key that is not listed is ignored, as Connect does it, and noted. Those that are known and have no
effect, such as keys about Connect's own process, are one note for each file.
"""

from __future__ import annotations

from collections.abc import Sequence

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
