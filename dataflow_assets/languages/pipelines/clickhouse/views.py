"""The views `PIPELINES`, `PIPELINES_SOURCE_OFFSETS`, `PIPELINES_BATCHES` and `PIPELINES_ERRORS`.

ClickHouse tells capital letters from small ones: names are those of SingleStore's
information_schema, so that queries run as they are written, but for the name of the database.
Offsets are those of the checkpoint log; all else comes from the tables of `monitoring`.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence

from dataflow_assets.connectors.clickhouse.client import Client, literal, query_rows, quote
from dataflow_assets.connectors.clickhouse.errors import failing
from dataflow_assets.connectors.clickhouse.rejected.error_sink import place as rejected_place

_MARK = "Made by dataflow-assets"  # then a hash of what the view says
_OF = "{database} AS DATABASE_NAME, pipeline_name AS PIPELINE_NAME"
_SHARDS = """arraySort(shard -> shard.1, arrayFilter(
                shard -> JSONHas(shard.2, 'sequenceNumber'),
                JSONExtractKeysAndValuesRaw(position, 'shards')))"""
_VIEWS = {
    "PIPELINES": """
SELECT {of}, cityHash64(flow, branch) AS PIPELINE_ID, config_json AS CONFIG_JSON, state AS STATE,
    skipped AS SKIPPED_BATCH_PARTITIONS, create_time AS CREATE_TIME, alter_time AS ALTER_TIME
FROM {s}.dataflow_pipeline AS d FINAL LEFT JOIN (
    SELECT flow, branch, countIf(rejected > 0) AS skipped FROM {s}.dataflow_pipeline_batch FINAL
    GROUP BY flow, branch) AS b USING (flow, branch)""",
    "PIPELINES_SOURCE_OFFSETS": """
SELECT {of}, batch AS BATCH_ID, one.1 AS TASK_ID, one.2 AS KEY, one.3 AS VALUE FROM (
    SELECT pipeline_name, batch, arrayJoin(arrayConcat(
        arrayMap((shard, n) -> (toInt64(n - 1), concat('{"shardId":', toJSONString(shard.1), '}'),
            concat('{"sequenceNumber":', JSONExtractRaw(shard.2, 'sequenceNumber'), '}')),
            {shards}, arrayEnumerate({shards})),
        arrayMap(each -> (JSONExtractInt(each.2, 'task'), each.1, JSONExtractRaw(each.2, 'value')),
            JSONExtractKeysAndValuesRaw(position, 'offsets')))) AS one
    FROM {s}.dataflow_pipeline AS d FINAL
    INNER JOIN (
        SELECT flow, branch, argMax(value, (epoch, n)) AS head,
            concat(JSONExtractString(head, 'partitions', 'stream', 'position'),
                JSONExtractString(head, 'partitions', 'connect', 'position')) AS position
        FROM {s}.dataflow_ledger WHERE kind = 'head' GROUP BY flow, branch) AS h
    USING (flow, branch)
    LEFT JOIN (
        SELECT flow, branch, maxIf(batch_id, batch_state = 'Succeeded') AS batch
        FROM {s}.dataflow_pipeline_batch FINAL GROUP BY flow, branch) AS b
    USING (flow, branch))""",
    "PIPELINES_BATCHES": """
SELECT {of}, batch_id AS BATCH_ID, batch_state AS BATCH_STATE, rows_written AS BATCH_ROWS_WRITTEN,
    toFloat64(ifNull(ended_at, now64(6))) - toFloat64(begun_at) AS BATCH_TIME,
    toFloat64(begun_at) AS BATCH_START_UNIX_TIMESTAMP, batch_state AS BATCH_PARTITION_STATE,
    rows_written + rejected AS BATCH_PARTITION_PARSED_ROWS,
    CAST(NULL, 'Nullable(String)') AS BATCH_SOURCE_PARTITION_ID
FROM {s}.dataflow_pipeline AS d FINAL
INNER JOIN (SELECT * FROM {s}.dataflow_pipeline_batch FINAL) AS b USING (flow, branch)""",
    "PIPELINES_ERRORS": """
SELECT {of}, toFloat64(happened_at) AS ERROR_UNIX_TIMESTAMP, error_type AS ERROR_TYPE,
    CAST(NULL, 'Nullable(Int64)') AS ERROR_CODE, message AS ERROR_MESSAGE, e.kind AS ERROR_KIND,
    CAST(NULL, 'Nullable(String)') AS STD_ERROR, line AS LOAD_DATA_LINE,
    CAST(NULL, 'Nullable(Int64)') AS LOAD_DATA_LINE_NUMBER, batch AS BATCH_ID, id AS ERROR_ID,
    source AS BATCH_SOURCE_PARTITION_ID, CAST(NULL, 'Nullable(Int64)') AS PARTITION
FROM {s}.dataflow_pipeline AS d FINAL INNER JOIN (
    SELECT flow, branch, happened_at, 'Error' AS error_type, message, kind,
        CAST(NULL, 'Nullable(String)') AS line, CAST(batch_id, 'Nullable(UInt64)') AS batch,
        toString(cityHash64(flow, branch, happened_at)) AS id,
        CAST(NULL, 'Nullable(String)') AS source
    FROM {s}.dataflow_pipeline_error {rejected}) AS e USING (flow, branch)""",
}
_REJECTED = """
    UNION ALL SELECT flow, branch, rejected_at, 'Warning', reason, toString(stage), body,
        CAST(NULL, 'Nullable(UInt64)'), id, CAST(partition, 'Nullable(String)')
    FROM {} FINAL"""
_THERE = """
SELECT name, comment FROM system.tables WHERE database = {d:String} AND name IN {n:Array(String)}
"""
_TABLES = """
SELECT DISTINCT table_name FROM {s}.dataflow_pipeline FINAL
WHERE concat(table_name, '_rejected') IN (
    SELECT name FROM system.tables WHERE database = {d:String}) ORDER BY 1
"""

log = logging.getLogger(__name__)


def prepare(client: Client, database: str) -> None:
    """Makes the views, with the rejected records of all pipelines of the database. Raises Failure.

    A table of a user that has the name of a view stays, and the log says so.
    """
    parameters = {"d": database, "n": list(_VIEWS)}
    there = dict(query_rows(client, _THERE, parameters))
    tables = query_rows(client, _TABLES.replace("{s}", quote(database)), {"d": database})
    for name, query in _VIEWS.items():
        text = _fill(query, database, [table for (table,) in tables])
        comment = f"{_MARK} {hashlib.sha256(text.encode()).hexdigest()[:16]}"
        if not there.get(name, _MARK).startswith(_MARK):
            log.warning("database %s has a %s of its own: there is no view of it", database, name)
        elif there.get(name) != comment:
            with failing():
                client.command(
                    f"CREATE OR REPLACE VIEW {quote(database, name)} AS {text} COMMENT '{comment}'"
                )


def _fill(query: str, database: str, tables: Sequence[str]) -> str:
    rejected = "".join(_REJECTED.format(quote(*rejected_place(database, one))) for one in tables)
    text = query.replace("{of}", _OF).replace("{database}", literal(database))
    text = text.replace("{shards}", _SHARDS)
    return text.replace("{s}", quote(database)).replace("{rejected}", rejected)
