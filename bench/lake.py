"""An Iceberg table as a source: filled once, and copied by the plain client."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from pyarrow import csv
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchTableError
from pyiceberg.table import Table

from bench.places import Places
from dataflow_assets.connectors.iceberg import IcebergSource
from dataflow_assets.connectors.iceberg.table.snapshot import total_records
from dataflow_assets.contracts import Kind
from dataflow_assets.sdk.types.comments import COMMENTS

NAMESPACE, TABLE = "bench", "source"
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.string()),
        ("amount", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("quantity", pa.int32()),
        pa.field("address", pa.string(), metadata={b"doc": COMMENTS[Kind.JSON].encode()}),
    ]
)
BATCHES = 64 << 20  # bytes of CSV on their way into the table

# In a process of its own, as a user's script would be.
COPY = "from bench.lake import copy; import sys; copy(*sys.argv[1:])"


def filled(places: Places, files: list[Path], count: int) -> None:
    """The table with these rows, a snapshot for each file; left as it is where it has them."""
    catalog = _catalog(places.seaweedfs.catalog_properties())
    with suppress(NamespaceAlreadyExistsError):
        catalog.create_namespace(NAMESPACE)
    with suppress(NoSuchTableError):
        if total_records(catalog.load_table((NAMESPACE, TABLE))) == count:
            return
        catalog.drop_table((NAMESPACE, TABLE))
    table = catalog.create_table((NAMESPACE, TABLE), SCHEMA)
    for file in files:
        table.append(_read(file))


def _read(file: Path) -> pa.Table:
    names = csv.ReadOptions(column_names=SCHEMA.names, block_size=BATCHES)
    types = {field.name: field.type for field in SCHEMA}
    found = csv.read_csv(file, names, convert_options=csv.ConvertOptions(column_types=types))
    return found.cast(SCHEMA)


def source(places: Places) -> IcebergSource:
    """The table as a flow reads it."""
    server = places.seaweedfs
    declared: dict[str, Any] = {
        "catalogURI": server.uri,
        "warehouse": server.warehouse,
        "namespace": NAMESPACE,
        "table": TABLE,
        "oauth2ClientID": server.access_key,
        "oauth2ClientSecret": server.secret_key,
        "s3Endpoint": server.s3_endpoint,
        "s3Region": server.region,
        "accessKey": server.access_key,
        "secretAccessKey": server.secret_key,
    }
    return IcebergSource.model_validate(declared)


def copy_all(places: Places, table: str) -> None:
    """The whole table through PyIceberg's scan into COPY on one connection."""
    properties = places.seaweedfs.catalog_properties()
    pairs = [f"{name}={value}" for name, value in properties.items()]
    command = [sys.executable, "-c", COPY, places.dsn, table, *pairs]
    assert subprocess.run(command, check=False).returncode == 0


def copy(dsn: str, table: str, *pairs: str) -> None:
    """One scan, one connection, one transaction."""
    catalog = _catalog(dict(pair.split("=", 1) for pair in pairs))
    with (
        psycopg.connect(dsn) as connection,
        connection.cursor().copy(f"COPY {table} FROM STDIN (FORMAT csv)") as sink,
    ):
        for text in _texts(catalog.load_table((NAMESPACE, TABLE))):
            sink.write(text)


def _texts(table: Table) -> Iterator[pa.Buffer]:
    for batch in table.scan().to_arrow_batch_reader():
        output = pa.BufferOutputStream()
        csv.write_csv(batch, output, csv.WriteOptions(include_header=False))
        yield output.getvalue()


def _catalog(properties: dict[str, Any]) -> Catalog:
    return load_catalog("lake", **properties)
