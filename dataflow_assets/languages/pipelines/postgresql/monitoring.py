"""Describes pipelines for people, as SingleStore's information_schema does.

Tables beside the checkpoint keep what the checkpoint does not: names and settings, batches, errors.
The views `pipelines`, `pipelines_source_offsets`, `pipelines_batches` and `pipelines_errors` join
both. Nothing here decides what is read or stored: the checkpoint alone does.
"""

from __future__ import annotations

import logging

from dataflow_assets.connectors.postgresql.client import Link, lock_name, quote
from dataflow_assets.contracts import Totals

_MARK = "Made by dataflow-assets (1)"
_MOST_BATCHES = 1_000
_TABLES = {
    "dataflow_pipeline": """(
    flow text, branch text, pipeline_name text NOT NULL, config_json json NOT NULL,
    state text NOT NULL, epoch bigint NOT NULL, create_time timestamptz NOT NULL DEFAULT now(),
    alter_time timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (flow, branch))""",
    "dataflow_pipeline_batch": """(
    flow text, branch text, batch_id bigint, batch_state text NOT NULL, rows_before bigint NOT NULL,
    rejected_before bigint NOT NULL, rows_written bigint NOT NULL DEFAULT 0,
    rejected bigint NOT NULL DEFAULT 0, begun_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamptz, PRIMARY KEY (flow, branch, batch_id))""",
    "dataflow_pipeline_error": """(
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, flow text NOT NULL, branch text NOT NULL,
    batch_id bigint, kind text NOT NULL, message text NOT NULL,
    happened_at timestamptz NOT NULL DEFAULT clock_timestamp())""",
}
_OF = "current_database()::text AS database_name, d.pipeline_name"
_VIEWS = {
    "pipelines": """
SELECT {of}, hashtextextended(d.flow || ':' || d.branch, 0) AS pipeline_id,
    d.config_json, d.state, (
        SELECT count(*) FROM {s}.dataflow_pipeline_batch b
        WHERE b.flow = d.flow AND b.branch = d.branch AND b.rejected > 0
    ) AS skipped_batch_partitions, d.create_time, d.alter_time
FROM {s}.dataflow_pipeline d""",
    "pipelines_source_offsets": """
SELECT {of}, (
        SELECT max(b.batch_id) FROM {s}.dataflow_pipeline_batch b
        WHERE b.flow = d.flow AND b.branch = d.branch AND b.batch_state = 'Succeeded'
    ) AS batch_id,
    o.task_id, o.key, o.value
FROM {s}.dataflow_pipeline d
JOIN {s}.dataflow_checkpoint_partition p ON p.flow = d.flow AND p.branch = d.branch
CROSS JOIN LATERAL (
    SELECT CASE WHEN p.partition IN ('stream', 'connect') THEN p.part::jsonb END
) AS position (found)
CROSS JOIN LATERAL (
    SELECT row_number() OVER (ORDER BY key) - 1 AS task_id,
        json_build_object('shardId', key) AS key,
        json_build_object('sequenceNumber', value ->> 'sequenceNumber') AS value
    FROM jsonb_each(position.found -> 'shards') WHERE value ? 'sequenceNumber'
    UNION ALL
    SELECT (value ->> 'task')::bigint, key::json, (value -> 'value')::json
    FROM jsonb_each(position.found -> 'offsets')
) AS o""",
    "pipelines_batches": """
SELECT {of}, b.batch_id, b.batch_state, b.rows_written AS batch_rows_written,
    extract(epoch FROM coalesce(b.ended_at, clock_timestamp()) - b.begun_at)::float8 AS batch_time,
    extract(epoch FROM b.begun_at)::float8 AS batch_start_unix_timestamp,
    b.batch_state AS batch_partition_state,
    b.rows_written + b.rejected AS batch_partition_parsed_rows,
    NULL::text AS batch_source_partition_id
FROM {s}.dataflow_pipeline d JOIN {s}.dataflow_pipeline_batch b USING (flow, branch)""",
    "pipelines_errors": """
SELECT {of}, extract(epoch FROM e.happened_at)::float8 AS error_unix_timestamp,
    e.error_type, NULL::bigint AS error_code, e.message AS error_message, e.kind AS error_kind,
    NULL::text AS std_error, e.line AS load_data_line, NULL::bigint AS load_data_line_number,
    e.batch_id, e.error_id, e.source AS batch_source_partition_id, NULL::bigint AS partition
FROM {s}.dataflow_pipeline d JOIN (
    SELECT flow, branch, happened_at, 'Error' AS error_type, message, kind, NULL AS line, batch_id,
        id::text AS error_id, NULL AS source
    FROM {s}.dataflow_pipeline_error
    UNION ALL
    SELECT flow, branch, rejected_at, 'Warning', reason, stage, body, NULL, id, partition
    FROM {s}.dataflow_rejected
) e USING (flow, branch)""",
}
_STANDS = """
SELECT obj_description(to_regclass($1::text), 'pg_class') IS NOT DISTINCT FROM $2::text,
    to_regclass($1::text) IS NOT NULL
"""
_OPEN = """
INSERT INTO {s}.dataflow_pipeline AS d (flow, branch, pipeline_name, config_json, state, epoch)
VALUES ($1, $2, $3, $4::json, 'Running', $5)
ON CONFLICT (flow, branch) DO UPDATE SET pipeline_name = excluded.pipeline_name,
    config_json = excluded.config_json, state = excluded.state, epoch = excluded.epoch,
    alter_time = CASE WHEN d.config_json::text = excluded.config_json::text THEN d.alter_time
                 ELSE now() END
WHERE d.epoch <= excluded.epoch
"""
# The newest batch was not seen to its end: what is stored tells what became of it.
_SETTLE = """
UPDATE {s}.dataflow_pipeline_batch SET ended_at = coalesce(ended_at, clock_timestamp()),
    rows_written = $3::bigint - rows_before, rejected = $4::bigint - rejected_before,
    batch_state = CASE WHEN NOT $5::boolean AND batch_state = 'In Progress'
        AND ($3::bigint > rows_before OR $4::bigint > rejected_before) THEN 'Succeeded'
        ELSE 'Failed' END
WHERE flow = $1 AND branch = $2 AND batch_state <> 'Succeeded' AND batch_id = (
    SELECT max(batch_id) FROM {s}.dataflow_pipeline_batch WHERE flow = $1 AND branch = $2)
"""
_BEGIN = """
INSERT INTO {s}.dataflow_pipeline_batch
    (flow, branch, batch_id, batch_state, rows_before, rejected_before)
SELECT $1, $2, coalesce(max(batch_id), 0) + 1, 'In Progress', $3::bigint, $4::bigint
FROM {s}.dataflow_pipeline_batch WHERE flow = $1 AND branch = $2
"""
_SUCCEED = """
UPDATE {s}.dataflow_pipeline_batch SET batch_state = 'Succeeded', ended_at = clock_timestamp(),
    rows_written = $3::bigint - rows_before, rejected = $4::bigint - rejected_before
WHERE flow = $1 AND branch = $2 AND batch_state = 'In Progress'
"""
_PRUNE = """
DELETE FROM {s}.dataflow_pipeline_batch WHERE flow = $1 AND branch = $2 AND batch_id <= (
    SELECT max(batch_id) - $3::bigint FROM {s}.dataflow_pipeline_batch
    WHERE flow = $1 AND branch = $2)
"""
_END = """
UPDATE {s}.dataflow_pipeline SET state = $4 WHERE flow = $1 AND branch = $2 AND epoch = $3
RETURNING 1
"""
_FAIL = """
UPDATE {s}.dataflow_pipeline_batch SET batch_state = 'Failed', ended_at = clock_timestamp()
WHERE flow = $1 AND branch = $2 AND batch_state = 'In Progress'
"""
_ERROR = """
INSERT INTO {s}.dataflow_pipeline_error (flow, branch, batch_id, kind, message)
SELECT $1, $2, max(batch_id), $3, $4 FROM {s}.dataflow_pipeline_batch
WHERE flow = $1 AND branch = $2
"""

log = logging.getLogger(__name__)


def prepare(link: Link, schema: str) -> None:
    """Makes tables and views that are missing; inside the caller's transaction.

    A table of a user that has the name of a view stays, and the log says so.
    """
    lock_name(link, f"{schema}.dataflow_pipeline")
    for name, columns in _TABLES.items():
        link.execute(f"CREATE TABLE IF NOT EXISTS {quote(schema)}.{quote(name)} {columns}")
    for name, query in _VIEWS.items():
        place = f"{quote(schema)}.{quote(name)}"
        ((ours, stands),) = link.execute(_STANDS, place, _MARK)
        if not stands:
            text = query.replace("{of}", _OF).replace("{s}", quote(schema))
            link.execute(f"CREATE VIEW {place} AS {text}")
            link.execute(f"COMMENT ON VIEW {place} IS '{_MARK}'")
        elif not ours:
            log.warning("schema %s has a %s of its own: there is no view of it", schema, name)


class PostgresqlMonitor:
    """One pipeline's rows; each method is a statement or two in the caller's transaction."""

    def __init__(self, schema: str, flow: str, branch: str) -> None:
        self._schema, self._flow, self._branch = quote(schema), flow, branch

    def note_open(self, link: Link, name: str, config: str, epoch: int) -> None:
        self._run(link, _OPEN, name, config, epoch)

    def settle(self, link: Link, totals: Totals, *, unfinished: bool) -> None:
        """Records what became of the batch in which the run before has ended."""
        self._run(link, _SETTLE, totals.rows, totals.rejected, unfinished)

    def note_begin(self, link: Link, totals: Totals) -> None:
        self._run(link, _BEGIN, totals.rows, totals.rejected)

    def note_success(self, link: Link, totals: Totals) -> None:
        self._run(link, _SUCCEED, totals.rows, totals.rejected)
        self._run(link, _PRUNE, _MOST_BATCHES)

    def note_end(self, link: Link, epoch: int, error: tuple[str, str] | None) -> None:
        """The run ends, with the kind and the sentence of an error or without one."""
        state = "Error" if error else "Stopped"
        if not self._run(link, _END, epoch, state):
            return  # another run has it
        if error:
            self._run(link, _FAIL)
            self._run(link, _ERROR, *error)

    def _run(self, link: Link, statement: str, *more: object) -> bool:
        text = statement.replace("{s}", self._schema)
        return bool(link.execute(text, self._flow, self._branch, *more))
