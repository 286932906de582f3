"""Files of sink connectors as tests write them."""

from __future__ import annotations

import json
from collections.abc import Mapping

Keys = dict[str, str | None]
JSON = "org.apache.kafka.connect.json.JsonConverter"
WORKER = "bootstrap.servers=localhost:9092\noffset.storage.file.filename=/tmp/connect.offsets\n"
DEBEZIUM: Keys = {
    "name": "orders-sink",
    "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
    "topics": "orders",
    "connection.url": "jdbc:postgresql://localhost:5432/shop",
    "connection.username": "shop",
    "value.converter": JSON,
    "value.converter.schemas.enable": "false",
    "key.converter": JSON,
    "key.converter.schemas.enable": "false",
}
CONFLUENT: Keys = {
    **{key: text for key, text in DEBEZIUM.items() if key != "connection.username"},
    "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
    "connection.user": "shop",
}
ICEBERG: Keys = {
    "name": "lake-sink",
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "topics": "orders",
    "iceberg.tables": "shop.orders",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "http://localhost:8181",
    "value.converter": JSON,
    "value.converter.schemas.enable": "false",
}
TABULAR: Keys = {"connector.class": "io.tabular.iceberg.connect.IcebergSinkConnector"}
SMT = "org.apache.kafka.connect.transforms."
UNWRAP = "io.debezium.transforms.ExtractNewRecordState"


def properties_text(keys: Mapping[str, str | None]) -> str:
    """A file of properties; None leaves a key out."""
    lines = (f"{key}={text}" for key, text in keys.items() if text is not None)
    return "\n".join(lines).replace("\\", "\\\\") + "\n"


def posted(keys: Mapping[str, str | None]) -> str:
    """The same as it is posted to Connect's REST interface."""
    config = {key: text for key, text in keys.items() if text is not None and key != "name"}
    return json.dumps({"name": keys["name"], "config": config}, indent=1)


def transforms(**each: Mapping[str, str]) -> Keys:
    """The keys of transforms in this order; `type` without Kafka's package."""
    found: Keys = {"transforms": ",".join(each)}
    for name, settings in each.items():
        for key, text in settings.items():
            whole = text if key != "type" or "." in text else SMT + text
            found[f"transforms.{name}.{key}"] = whole
    return found
