"""The keys of Kafka Connect's consumer and worker, and those that connectors' files get here."""

from __future__ import annotations

from collections.abc import Sequence

from dataflow_assets.languages.common.client_keys import CLIENT
from dataflow_assets.languages.common.key_tables import Key

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
    Key("value.converter.*", "used", "As in the connector's file, which wins."),
    Key("key.converter*", "used", "As in the connector's file, which wins."),
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
