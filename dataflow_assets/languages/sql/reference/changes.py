"""Writes the part of the page of SQL files on tables whose messages are changes."""

from __future__ import annotations

from dataflow_assets.languages.sql.engine.metadata import OF_CHANGES

TEXT = """## Changes

A table of `kafka` with the format `debezium-json`, `debezium-avro-confluent`, `canal-json` or
`maxwell-json` reads changes: an insert is a row that comes, a delete a row that goes, an update
both. The target needs a PRIMARY KEY. Such tables are only read.

**With a PRIMARY KEY** a change replaces the row of its key, or deletes it, as with `upsert-kafka`,
and a change that comes twice counts once. This works with PostgreSQL's default REPLICA IDENTITY,
which leaves out the row before an update. A change of the key deletes the row of the old key, if
the database's log names rows by this key: declare the table's own primary key. WHERE may not ask
for METADATA of the envelope, since a change of another table would delete the row of its key.

**Without one** a row that goes is known by all of its columns, so each update and delete must carry
the whole row before: REPLICA IDENTITY FULL in PostgreSQL. An update without it is rejected. A
delete that has only the key in its row before looks the same as one of a row of nulls, and a change
that comes twice counts twice in groups, as a rejected one does not count; the topic must begin with
the inserts of its rows, for a row that goes without having come counts as one too few. Declare the
PRIMARY KEY wherever the table has one. Groups keep how many there are of each row, so a row that is
read after its delete, from another partition, does not stay (unless `table.exec.state.ttl` is set).
In a query without groups the PRIMARY KEY of the target must tell the rows of the table apart, and
all changes of a row must be in one partition. Windows need the PRIMARY KEY of the table.

%s

Values are read by the types of the columns, as in JSON without an envelope; a schema in the message
is not looked at. Dates and times that Debezium writes as numbers are INT or BIGINT here, as in
Flink: compute with them in the query (`TO_TIMESTAMP_LTZ(at, 3)`). For decimals set the connector's
`decimal.handling.mode` to `string` or `double`; in base64 they are STRING. The step
`debeziumUnwrap` of DataFlow manifests converts all of them by the schema.

METADATA of the envelope, beside that of the message:

%s
"""
MESSAGES = (
    ("a tombstone", "nothing: the delete in front of it has deleted the row"),
    ("`op` is `r` (snapshot), Maxwell's `bootstrap-insert`", "an insert"),
    (
        "a message of Canal with several rows in `data`",
        "each row is a change; a row of `old` has the fields that the update has changed",
    ),
    ("a table is created, altered or renamed (Canal, Maxwell)", "nothing"),
    (
        "a table is emptied or dropped (`op` is `t`, TRUNCATE, ERASE, `table-drop`)",
        "rejected: delete the rows of the target yourself",
    ),
    (
        "a large value that the update has left alone (`__debezium_unavailable_value`)",
        "the value of the row before; where that has none, the record is rejected",
    ),
    ("anything else", "rejected"),
)
"""What comes of a message."""


_NAMES = {"debezium": "Debezium's", "canal": "`canal-json`", "maxwell": "`maxwell-json`"}
KEYS = [
    (_NAMES[one], ", ".join(f"`{key}` ({kind})" for key, kind in known.items()))
    for one, known in OF_CHANGES.items()
]
"""By the format its keys of METADATA."""
