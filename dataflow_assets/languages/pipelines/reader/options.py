"""The keys of CONFIG and CREDENTIALS with their verdicts: what checking and the reference go by."""

from __future__ import annotations

from collections.abc import Sequence

from dataflow_assets.languages.common.key_tables import Key

KINESIS = "com.singlestore.kafka.connect.kinesis.KinesisSourceConnector"
CLASSES = (KINESIS, "com.github.jcustenborder.kafka.connect.kinesis.KinesisSourceConnector")
"""Classes that are the native source `kinesis` here; their keys are the same."""

_OWN = "a row is made of the record itself, and needs no converter"
_TOPIC = "there is no topic of Kafka in between"
_OF_WORKERS: Sequence[Key] = (
    Key("key.converter*", "note", f"has no effect: {_OWN}"),
    Key("value.converter*", "note", f"has no effect: {_OWN}"),
    Key("header.converter*", "note", f"has no effect: {_OWN}"),
    Key("topic.creation.*", "note", f"has no effect: {_TOPIC}"),
    Key("offsets.storage.topic", "note", f"has no effect: {_TOPIC}"),
    Key("exactly.once.support", "ignored", "Rows and offsets are one commit."),
    Key("transaction.boundary*", "ignored", "Rows and offsets are one commit."),
    Key("errors.*", "note", "has no effect: STOP_ON_ERROR says what a record that fails does"),
)
"""What is a matter of a worker of Kafka Connect, whatever the class."""
KEYS: Sequence[Key] = (
    Key("connector.class", "used", f"`{KINESIS}`.", "required"),
    Key("kafka.topic", "used", "The value of the column `topic`.", "required"),
    Key("kinesis.stream", "used", "Name of the stream.", "required"),
    Key("kinesis.region", "used", "AWS region of the stream.", "`us-east-1`"),
    Key(
        "kinesis.position",
        "used",
        "Where a pipeline without offsets begins: `TRIM_HORIZON` or `LATEST`.",
        "`TRIM_HORIZON`",
    ),
    Key("kinesis.endpoint", "used", "Address of the service, where it is not the region's own."),
    Key("aws.access.key.id", "used", "AWS access key; without it as AWS's own clients look it up."),
    Key("aws.secret.key.id", "used", "AWS secret key."),
    Key("kinesis.shard.id", "refused", "all shards of a stream are read"),
    Key("kinesis.record.limit", "ignored", "Reads are as large as AWS allows."),
    Key("kinesis.empty.records.backoff.ms", "ignored", "BATCH_INTERVAL says how often to look."),
    Key("kinesis.throughput.exceeded.backoff.ms", "ignored", "Pauses grow by themselves."),
    Key("tasks.max", "note", "has no effect: all shards are read side by side", "4"),
    Key("name", "ignored", "The name is the pipeline's."),
    *_OF_WORKERS,
    Key(
        "transforms*",
        "refused",
        "transforms of Kafka Connect are not run for Kinesis: use a procedure",
    ),
    Key("predicates*", "refused", "transforms of Kafka Connect are not run for Kinesis"),
)
PLUGINS, SPOOL = "plugin.path", "dataflow.spool"
CONNECT_KEYS: Sequence[Key] = (
    Key("connector.class", "used", "Class of the connector.", "required"),
    Key(
        PLUGINS,
        "used",
        "Folders with the connector's jars, separated by commas, below DATAFLOW_FILES.",
        "required",
    ),
    Key(
        SPOOL,
        "used",
        "A folder of its own, below DATAFLOW_FILES, in which records wait until they are stored.",
        "required",
    ),
    Key("tasks.max", "used", "The most tasks.", "4"),
    Key("name", "ignored", "The name is the pipeline's."),
    Key(
        "config.providers*",
        "used",
        "More config providers, of Kafka's own classes; `env`, `file` and `directory` are there.",
    ),
    *_OF_WORKERS,
    Key("*", "used", "The connector's own settings, with its transforms and predicates."),
)
"""Of every other class: it is run by the source `kafkaConnect`."""
MASK = "***"
