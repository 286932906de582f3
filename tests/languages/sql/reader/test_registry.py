"""Tables of the format avro-confluent: keys and values name their schemas in a registry."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer

import devservers
from dataflow_assets.flow import Flow
from dataflow_assets.formats.registry_client import RegistryClient
from dataflow_assets.runs.request import Report
from tests.languages.sql.files import Sql
from tests.languages.sql.reader.reading import PLAIN, TARGET, findings, loaded

Run = Callable[[Flow], list[Report]]
KEYED = "k BIGINT, a STRING, t TIMESTAMP(3), PRIMARY KEY (k) NOT ENFORCED"
TIME = datetime(2020, 12, 30, 12, 13, 14, 500000, UTC)
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "k", "type": "long"},
        {"name": "more", "type": "string"},
        {"name": "a", "type": "string"},
        {"name": "t", "type": "long"},
    ],
}


def written(schema: dict[str, Any], number: int, value: dict[str, Any]) -> bytes:
    """A value with the number of its schema in front, as a producer of Java writes it."""
    out = BytesIO(b"\0" + number.to_bytes(4, "big"))
    out.seek(5)
    schemaless_writer(out, parse_schema(schema), value)
    return out.getvalue()


@pytest.mark.heavy
@pytest.mark.timeout(300)
def test_what_others_wrote_is_read_and_what_is_written_names_its_schema(
    sql: Sql, run: Run, apicurio: devservers.Apicurio
) -> None:
    client = RegistryClient(apicurio.url)
    number = client.register(f"{sql.source}-value", "AVRO", json.dumps(ORDER))
    format_ = {"format": "avro-confluent", "avro-confluent.url": apicurio.url}
    keyed = {
        f"{what}.{name}": value
        for what in ("key", "value")
        for name, value in (
            ("format", "avro-confluent"),
            ("avro-confluent.url", apicurio.url),
            ("avro-confluent.subject", f"{sql.target}.{what}s"),
        )
    }
    flow = sql.write(
        "k BIGINT, a STRING, t TIMESTAMP(3)",
        KEYED,
        "SELECT k, UPPER(a), t FROM s",
        source_with=format_,
        target_with=keyed,
    )
    order = {"k": 7, "more": "x", "a": "é", "t": 1_609_330_394_500}
    sql.send([(None, written(ORDER, number, order)), (None, b"\0\0")])
    run(flow)
    ((key, value),) = sql.rows()
    assert key is not None
    assert value is not None
    for what, found, row in (
        ("key", key, {"k": 7}),
        ("value", value, {"k": 7, "a": "É", "t": TIME}),
    ):
        number, schema = client.latest(f"{sql.target}.{what}s")
        assert found[:5] == b"\0" + number.to_bytes(4, "big")
        read: Any = schemaless_reader(BytesIO(found[5:]), json.loads(schema.text), None)
        assert read == row
    again = Sql(sql.path, sql.kafka, sql.target, f"{sql.target}-again")
    run(again.write(KEYED, KEYED, "SELECT * FROM s", source_with=keyed))
    assert again.rows() == [
        (b'{"k":7}', '{"k":7,"a":"É","t":"2020-12-30 12:13:14.5"}'.encode()),
    ]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "is required: the schema registry"),
        ({"url": "http://r:1", "auto.register.schemas": "false"}, "allowed: true"),
        ({"url": "http://r:1", "schema": "{}"}, "the schema is that of the columns"),
        ({"url": "r"}, "must be the address of a registry"),
        ({"url": "http://r:1", "basic-auth.user-info": "u"}, "must be user:password"),
        ({"url": "http://r:1", "ssl.truststore.location": "/x"}, "key stores are not read"),
    ],
)
def test_mistakes_in_the_options_of_a_registry(
    tmp_path: Path, options: dict[str, str], says: str
) -> None:
    more = "".join(f", 'avro-confluent.{key}' = '{value}'" for key, value in options.items())
    given = PLAIN.replace("json", "avro-confluent")
    source = f"CREATE TABLE s (a BIGINT, b STRING) WITH ({given}{more});"
    found = loaded(tmp_path, source, TARGET, "INSERT INTO o SELECT a, b FROM s")
    assert found.flows == ()
    assert [says in each[3] for each in findings(found)] == [True]


def test_the_login_of_a_registry(tmp_path: Path) -> None:
    """The password is kept where it is referred to."""
    more = (
        ", 'avro-confluent.url' = 'https://r:1', 'avro-confluent.basic-auth.user-info' = "
        "'u:${env:REGISTRY}', 'avro-confluent.basic-auth.credentials-source' = 'USER_INFO'"
    )
    given = PLAIN.replace("json", "avro-confluent")
    source = f"CREATE TABLE s (a BIGINT, b STRING) WITH ({given}{more});"
    found = loaded(tmp_path, source, TARGET, "INSERT INTO o SELECT a, b FROM s")
    (flow,) = found.flows
    registry: Any = getattr(flow.source, "schema_registry", None)
    assert registry.basic_auth.username == "u"
    assert registry.basic_auth.password_secret_ref.key == "REGISTRY"
