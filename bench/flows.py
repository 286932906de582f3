"""The flows that are measured, through the product's own loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow.compute as pc
from pydantic import SecretStr
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError

import devservers
from bench.places import Places
from dataflow_assets import registry
from dataflow_assets.connectors.iceberg import IcebergSink, NessieSink
from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.connectors.postgresql import PostgresqlSink
from dataflow_assets.contracts import Sink, Source, Totals
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.records.chain import Transformation
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Patience, Request, Start
from dataflow_assets.secrets.tls import Tls
from dataflow_assets.spark.session import Spark

NAMESPACE = "bench"
BEGIN = Start(at="earliest", confirmed=True)  # whatever an earlier measurement has left


def source(places: Places, topic: str) -> KafkaSource:
    """The topic from its beginning."""
    return KafkaSource(
        brokers=(places.bootstrap,),
        topic=topic,
        consumer_group="bench",
        starting_offsets="earliest",
    )


def encrypted(kafka: devservers.SecureKafka, topic: str) -> KafkaSource:
    """The same over mTLS."""
    return KafkaSource(
        brokers=(kafka.at("mtls"),),
        topic=topic,
        consumer_group="bench",
        starting_offsets="earliest",
        tls=Tls(
            ca_file=str(kafka.authority.ca),
            cert_file=str(kafka.client.cert),
            key_file=SecretStr(str(kafka.client.key)),
        ),
    )


def flow(
    places: Places, topic: str, name: str, sink: Sink, steps: tuple[Transformation, ...] = ()
) -> Flow:
    """One source, one sink, everything else as it is by default."""
    return read(source(places, topic), name, sink, steps)


def read(source: Source, name: str, sink: Sink, steps: tuple[Transformation, ...] = ()) -> Flow:
    """The same of any source."""
    return Flow("bench", name, source, (Branch(sink),), transformations=steps, hash="bench")


CHAIN: tuple[tuple[str, dict[str, Any]], ...] = (
    ("filter", {"condition": "$.customer != 'c-none' && $.quantity >= 0"}),
    ("select", {"fields": ["id", "customer", "amount", "at", "quantity", "address"]}),
    ("snakeCase", {}),
    ("cast", {"spec": {"id": "int64", "amount": "float64", "quantity": "int64"}}),
    ("insertField", {"fields": {"address.country": "DE"}}),
)
"""The five steps that are measured; every message passes them, and all but the first change it."""


def chain() -> tuple[Transformation, ...]:
    """The five steps, each with its config."""
    known = registry.steps()
    return tuple(Transformation(known[name].model_validate(config)) for name, config in CHAIN)


def append(places: Places, table: str) -> PostgresqlSink:
    """Appends to a PostgreSQL table."""
    return PostgresqlSink(connection_string=SecretStr(places.dsn), table=table)


def upsert(places: Places, table: str) -> PostgresqlSink:
    """Upserts into a PostgreSQL table."""
    return PostgresqlSink(
        connection_string=SecretStr(places.dsn),
        table=table,
        upsert_mode=True,
        conflict_key=("id",),
    )


def iceberg(places: Places, table: str) -> IcebergSink:
    """Appends to an Iceberg table that the flow makes itself."""
    server = places.seaweedfs
    declared = {
        "catalogURI": server.uri,
        "warehouse": server.warehouse,
        "namespace": NAMESPACE,
        "table": table,
        "oauth2ClientID": server.access_key,
        "oauth2ClientSecret": server.secret_key,
        "s3Endpoint": server.s3_endpoint,
        "s3Region": server.region,
        "accessKey": server.access_key,
        "secretAccessKey": server.secret_key,
        "autoCreateTable": True,
    }
    return IcebergSink.model_validate(declared)


def nessie(places: Places, table: str) -> NessieSink:
    """Appends to a table on a branch of Nessie that the flow makes itself."""
    store = places.seaweedfs
    declared = {
        "baseURL": places.nessie.uri,
        "namespace": NAMESPACE,
        "table": table,
        "s3Endpoint": store.s3_endpoint,
        "s3Region": store.region,
        "accessKey": store.access_key,
        "secretAccessKey": store.secret_key,
        "autoCreateTable": True,
    }
    return NessieSink.model_validate(declared)


def run(what: Flow, spark: Spark) -> Totals:
    """Drains the flow; what it reported."""
    order = Request(start=BEGIN, patience=Patience(5))
    return sum((report.delta for report in drain(what, spark.session, order)), Totals())


def forget_iceberg(properties: Mapping[str, str], table: str) -> None:
    """Drops the table of a catalog, if it is there; its checkpoint goes with it."""
    try:
        load_catalog("lake", **properties).drop_table((NAMESPACE, table))
    except NoSuchTableError:
        return


def check_iceberg(properties: Mapping[str, str], table: str, count: int) -> None:
    """Every message is there, and once."""
    stored = load_catalog("lake", **properties).load_table((NAMESPACE, table))
    found = stored.scan(selected_fields=("id",)).to_arrow()
    distinct = pc.count_distinct(found.column("id")).as_py()
    assert (found.num_rows, distinct) == (count, count), f"{table}: {found.num_rows}, {distinct}"
