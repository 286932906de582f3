"""Tables of PostgreSQL read as DataFrames: rows larger than a block of the reader."""

from __future__ import annotations

from contextlib import ExitStack

import psycopg
import pytest
from psycopg import sql
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.postgresql.frames.frame_table import PostgresqlFrameTable
from dataflow_assets.connectors.postgresql.frames.read import BLOCK_BYTES, read

LARGEST = 3 * BLOCK_BYTES


@pytest.mark.parametrize("size", [BLOCK_BYTES - 1, 2 * BLOCK_BYTES, LARGEST])
def test_a_row_larger_than_a_block_is_read(
    size: int, postgresql: devservers.PostgreSQL, schema: str, engine: SparkSession
) -> None:
    table = PostgresqlFrameTable(postgresql.dsn(), schema, "t")
    with psycopg.connect(postgresql.dsn(), autocommit=True) as link:
        link.execute(sql.SQL("SET search_path = {}").format(sql.Identifier(schema)))
        link.execute("CREATE TABLE t (id int, body text)")
        link.execute(
            "INSERT INTO t VALUES (1, 'a'), (2, repeat(E'x\"\\n', %s / 3)), (3, NULL), (4, '')",
            [size],
        )
    with ExitStack() as held:
        rows = read(table, engine, None, held).toArrow().to_pylist()
    bodies = {row["id"]: row["body"] for row in rows}
    assert bodies == {1: "a", 2: 'x"\n' * (size // 3), 3: None, 4: ""}
