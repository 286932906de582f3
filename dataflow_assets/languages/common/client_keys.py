"""The keys of Kafka's Java clients that several languages hand on, each with its verdict."""

from __future__ import annotations

from collections.abc import Sequence

from dataflow_assets.languages.common.key_tables import Key

_PEM = (
    "only PEM is supported: export the certificates (keytool -exportcert -rfc, openssl pkcs12) "
    "and give them with ssl.truststore.type=PEM and ssl.keystore.type=PEM"
)
CLIENT: Sequence[Key] = (
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
