"""What the tests of the Iceberg source share: a source on the test catalog, and a reader of it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from dataflow_assets.connectors.iceberg import IcebergSource
from dataflow_assets.connectors.iceberg.table.position import SnapshotPosition
from dataflow_assets.contracts import Limit, Positions, Source, Span, system_name
from dataflow_assets.micro_batch.parts import part_reader
from devservers import SeaweedFS
from tests.connectors.iceberg.driver import connection

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
WHOLE = Limit()
MakeSource = Callable[..., IcebergSource]
Row = dict[str, Any]


def make_source(seaweedfs: SeaweedFS, namespace: str, **changes: Any) -> IcebergSource:
    return IcebergSource.model_validate(connection(seaweedfs, namespace, "events") | changes)


def make_table(catalog: Catalog, namespace: str, schema: Any = SCHEMA, **properties: str) -> Table:
    return catalog.create_table((namespace, "events"), schema, properties=properties)


def rows(low: int, high: int) -> pa.Table:
    ids = pa.array(range(low, high), pa.int64())
    return pa.table([ids, [f"n{number}" for number in range(low, high)]], SCHEMA)


def spans(
    source: Source, after: Positions | None = None, limit: Limit = WHOLE
) -> Iterator[tuple[Span, Positions]]:
    """Every span from a position to the end that is visible now, with where it leads."""
    with closing(source.open("default/f")) as session:
        after = session.start() if after is None else after
        ends = session.end()
        while not (span := session.plan(after, limit, ends)).empty:
            after = session.fold({piece.partition: piece.upto for piece in span.slices})
            yield span, after


def read(
    source: Source, after: Positions | None = None, limit: Limit = WHOLE
) -> tuple[list[Row], Positions]:
    """All rows from a position to the end, and the end."""
    found: list[Row] = []
    with closing(source.open("default/f")) as session:
        reached = session.start() if after is None else after
    for span, reached in spans(source, after, limit):  # noqa: B007 - the last one is given back
        found += [row for part in parts(source, span) for row in part]
    return found, reached


def parts(source: Source, span: Span, metadata: frozenset[str] = frozenset()) -> list[list[Row]]:
    """The rows of each part."""
    return [
        [
            {name: value for name, value in row.items() if name != system_name("place")}
            for batch in part_reader(source).batches(piece, metadata)
            for row in batch.to_pylist()
        ]
        for piece in span.slices
    ]


def ids(found: Sequence[Row]) -> list[int]:
    return [row["id"] for row in found]


def stands(positions: Positions) -> SnapshotPosition:
    return SnapshotPosition.parse(positions["table"])


def lake(spark: SparkSession, seaweedfs: SeaweedFS) -> str:
    """The name of a Spark catalog on the test catalog, fresh, so that it knows nothing old."""
    name = f"lake_{uuid.uuid4().hex[:8]}"
    options = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "rest",
        ".uri": seaweedfs.uri,
        ".warehouse": seaweedfs.warehouse,
        ".credential": f"{seaweedfs.access_key}:{seaweedfs.secret_key}",
        ".io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        ".s3.endpoint": seaweedfs.s3_endpoint,
        ".s3.access-key-id": seaweedfs.access_key,
        ".s3.secret-access-key": seaweedfs.secret_key,
        ".s3.path-style-access": "true",
        ".client.region": seaweedfs.region,
        ".cache-enabled": "false",
    }
    for key, value in options.items():
        spark.conf.set(f"spark.sql.catalog.{name}{key}", value)
    return name
