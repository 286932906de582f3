"""Every key of JustOne's files, with its verdict: what checking and the reference go by.

| verdict | meaning |
|---|---|
| used | does what it says |
| note | accepted; `dataflow check` notes what happens instead |
| ignored | known, without effect here, and not noted: it is about Connect's own process |
| refused | a finding says why |

A key that is not listed is ignored, as Connect does it, and noted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

CLASS = "com.justone.kafka.sink.pg.json.PostgreSQLSinkConnector"
CLASSES = frozenset({CLASS, "PostgreSQLSinkConnector", "PostgreSQLSink"})
"""As Connect's workers find it: by its full name, its plain one, or without the ending."""
STRING = "org.apache.kafka.connect.storage.StringConverter"


@dataclass(frozen=True)
class Key:
    """One key, or with `*` at its end all that begin so."""

    name: str
    verdict: Literal["used", "note", "ignored", "refused"]
    says: str
    default: str = "-"
    """`required`, or the text that counts where the key is missing."""

    def matches(self, key: str) -> bool:
        """Whether the entry is about a key."""
        if self.name.endswith("*"):
            return key.startswith(self.name[:-1])
        return key == self.name


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
_PEM = (
    "only PEM is supported: export the certificates (keytool -exportcert -rfc, openssl pkcs12) "
    "and give them with ssl.truststore.type=PEM and ssl.keystore.type=PEM"
)
CONSUMER: Sequence[Key] = (
    Key("security.protocol", "used", "How brokers are reached.", "PLAINTEXT"),
    Key(
        "sasl.mechanism",
        "used",
        "`PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`; Kafka's own default, GSSAPI, is refused.",
        "required with SASL",
    ),
    Key(
        "sasl.jaas.config",
        "used",
        'A login module with `username="..."` and `password="..."`; each may be `${env:VARIABLE}` '
        "or `${secrets:NAMESPACE/NAME:KEY}`.",
        "required with SASL",
    ),
    Key("ssl.truststore.type", "used", f"`PEM`; otherwise {_PEM}"),
    Key("ssl.truststore.location", "used", "Absolute path of the CA certificates in PEM."),
    Key("ssl.truststore.certificates", "used", "The CA certificates as PEM text."),
    Key("ssl.keystore.type", "used", f"`PEM`; otherwise {_PEM}"),
    Key("ssl.keystore.location", "used", "Absolute path of certificate and key in PEM."),
    Key("ssl.keystore.certificate.chain", "used", "The client's certificate as PEM text."),
    Key("ssl.keystore.key", "used", "The client's key as PEM text, without a password."),
    Key("ssl.key.password", "refused", "keys with a password are not supported: remove it"),
    Key(
        "ssl.endpoint.identification.algorithm",
        "used",
        "`https`: the brokers' names are checked. An empty one is refused.",
        "https",
    ),
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
    Key("fetch.*", "ignored", "How fetches are cut."),
    Key("max.*", "ignored", "How fetches are cut."),
    Key("session.*", "ignored", "The flow is no member of its consumer group."),
    Key("heartbeat.*", "ignored", "The flow is no member of its consumer group."),
    Key("request.*", "ignored", "Time limits are the product's own."),
    Key("default.*", "ignored", "Time limits are the product's own."),
    Key("reconnect.*", "ignored", "Time limits are the product's own."),
    Key("retry.*", "ignored", "Time limits are the product's own."),
    Key("connections.*", "ignored", "Time limits are the product's own."),
    Key("metadata.*", "ignored", "Time limits are the product's own."),
    Key("receive.buffer.bytes", "ignored", "How fetches are cut."),
    Key("send.buffer.bytes", "ignored", "How fetches are cut."),
    Key("client.*", "ignored", "Names for the broker's own log."),
    Key("enable.auto.commit", "ignored", "Positions are in the table's checkpoint."),
    Key("check.crcs", "ignored", "Checked by the client."),
    Key("partition.assignment.strategy", "ignored", "Partitions are tasks of Spark."),
    Key("interceptor.classes", "ignored", "Classes of Java are not run."),
    Key("ssl.truststore.password", "ignored", "PEM has none."),
    Key("ssl.keystore.password", "ignored", "PEM has none."),
    Key("ssl.protocol", "ignored", "TLS 1.2 and later."),
    Key("ssl.enabled.protocols", "ignored", "TLS 1.2 and later."),
    Key("ssl.cipher.suites", "ignored", "Those of the client."),
    Key("ssl.provider", "ignored", "Classes of Java are not run."),
    Key("ssl.keymanager.algorithm", "ignored", "Classes of Java are not run."),
    Key("ssl.trustmanager.algorithm", "ignored", "Classes of Java are not run."),
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
PLACEHOLDER = "the ??? of the example file, or another placeholder in its place"
_PLACEHOLDER = re.compile(r"\?{2,}|<[\w .-]+>")


def entry(key: str, *tables: Sequence[Key]) -> Key | None:
    """What the tables say about a key; a plain entry wins over one with `*`."""
    found = [one for table in tables for one in table if one.matches(key)]
    plain = (one for one in found if not one.name.endswith("*"))
    return next(plain, found[0] if found else None)


def names(*tables: Sequence[Key]) -> Iterator[str]:
    """The keys that may be meant by another one."""
    return (one.name for table in tables for one in table if not one.name.endswith("*"))


def is_placeholder(text: str) -> bool:
    """Whether something must still be written: `???`, as in the example file, or `<a word>`."""
    return _PLACEHOLDER.fullmatch(text.strip()) is not None
