"""Every metric of a flow, declared once: endpoint, page, alerts and dashboard read these.

Names and labels are the DataFlow Operator's where it has the metric. Its buckets are the first ones
of ours: wider ones follow, since a quantile never exceeds the last finite bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FLOW = ("namespace", "name")
_END = ("connector_type", "connector_name")
_TABLE = ("branch", "table")


@dataclass(frozen=True)
class Metric:
    """One metric; the first labels of every one are the flow's namespace and name."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    operator: bool = False
    """The DataFlow Operator has it under this name, with these labels."""
    keeps: bool = False
    """A gauge that stays true when the process that has set it is gone."""
    asked: bool = False
    """The endpoint asks sources and sinks for it, whichever process drives the flow."""
    of_flow: bool = True
    """Its first labels are those of the flow."""
    optional: bool = False
    """Only some flows have it: what it tells of is not at hand elsewhere."""

    @property
    def all_labels(self) -> tuple[str, ...]:
        return (*FLOW, *self.labels) if self.of_flow else self.labels


def _buckets(start: float, factor: float, count: int) -> tuple[float, ...]:
    return tuple(float(f"{start * factor**n:.6g}") for n in range(count))


RECEIVED = Metric(
    "dataflow_messages_received_total", "counter",
    "Messages that were read from the source.", ("source_type",), operator=True,
)  # fmt: skip
SENT = Metric(
    "dataflow_messages_sent_total", "counter",
    "Records that were stored in the target.", ("sink_type", "route"), operator=True,
)  # fmt: skip
PROCESSING = Metric(
    "dataflow_processing_duration_seconds", "histogram",
    "Seconds in which a task read, transformed and wrote the slice that a message was in.",
    buckets=_buckets(0.001, 2, 18), operator=True,
)  # fmt: skip
STATUS = Metric(
    "dataflow_status", "gauge",
    "1 for the flow's phase, 0 for the others: Running, Error or Stopped.", ("phase",),
    operator=True, keeps=True,
)  # fmt: skip
READ = Metric(
    "dataflow_connector_messages_read_total", "counter",
    "Messages that a source gave.", _END, operator=True,
)  # fmt: skip
WRITTEN = Metric(
    "dataflow_connector_messages_written_total", "counter",
    "Records that a sink stored.", (*_END, "route"), operator=True,
)  # fmt: skip
ERRORS = Metric(
    "dataflow_connector_errors_total", "counter",
    "Errors that ended a micro-batch or an attempt, by whose they were and what it did.",
    (*_END, "operation", "error_type"), operator=True,
)  # fmt: skip
CONNECTION = Metric(
    "dataflow_connector_connection_status", "gauge",
    "1 where the last use of the source or sink went well, 0 where it failed.", _END,
    operator=True, keeps=True,
)  # fmt: skip
POLL = Metric(
    "dataflow_connector_source_poll_healthy", "gauge",
    "1 where the last look for new records went well.", _END, operator=True, keeps=True,
)  # fmt: skip
STEP_ERRORS = Metric(
    "dataflow_transformer_errors_total", "counter",
    "Records that a step rejected.", ("transformer_type", "transformer_index", "error_type"),
    operator=True,
)  # fmt: skip
STAGE = Metric(
    "dataflow_task_stage_duration_seconds", "histogram",
    "Seconds of a slice in read, transformation and write, and of a commit in sink_write.",
    ("stage",), _buckets(0.0001, 2, 21), operator=True,
)  # fmt: skip
SIZE = Metric(
    "dataflow_task_message_size_bytes", "histogram",
    "Bytes of a message, as the mean of its slice (input) or commit (output).", ("stage",),
    _buckets(64, 2, 20), operator=True,
)  # fmt: skip
STAGE_ERRORS = Metric(
    "dataflow_task_stage_errors_total", "counter",
    "Errors by the stage in which they came.", ("stage", "error_type"), operator=True,
)  # fmt: skip
OPERATIONS = Metric(
    "dataflow_task_operations_total", "counter",
    "Passes (write) and commits (sink_write) of micro-batches, by how they ended.",
    ("operation", "status"), operator=True,
)  # fmt: skip
THROUGHPUT = Metric(
    "dataflow_task_throughput_messages_per_second", "gauge",
    "Messages read in a second, over ten seconds.", operator=True,
)  # fmt: skip
SUCCESS = Metric(
    "dataflow_task_success_rate", "gauge",
    "Share of passes and commits that went well, over ten seconds with any; 0 to 1.", operator=True,
)  # fmt: skip
END_TO_END = Metric(
    "dataflow_task_end_to_end_latency_seconds", "histogram",
    "Seconds from the look that found a message to the commit of its micro-batch.",
    buckets=_buckets(0.001, 2, 20), operator=True,
)  # fmt: skip
ACTIVE = Metric(
    "dataflow_task_active_messages", "gauge",
    "Messages of the micro-batch that is under way, where the source numbers them.", operator=True,
)  # fmt: skip

PHASE = Metric(
    "dataflow_commit_phase_seconds", "histogram",
    "Seconds of a micro-batch in plan, begin, pass and finish.", ("phase",),
    _buckets(0.001, 4, 10),
)  # fmt: skip
BYTES = Metric(
    "dataflow_bytes_total", "counter",
    "Bytes read of the messages that were stored or rejected.", _TABLE,
)  # fmt: skip
REJECTED = Metric(
    "dataflow_rejected_records_total", "counter",
    "Records that could not be stored, by where that was found and why.", ("stage", "error_type"),
)  # fmt: skip
COMMITTED = Metric(
    "dataflow_last_commit_timestamp_seconds", "gauge",
    "When the branch was committed last, in seconds since 1970.", _TABLE, keeps=True,
)  # fmt: skip
FILES = Metric(
    "dataflow_table_files", "gauge",
    "Data files of an Iceberg table.", _TABLE, keeps=True, optional=True,
)  # fmt: skip
LAG_RECORDS = Metric(
    "dataflow_lag_records", "gauge",
    "Records that a branch of a flow has not stored.", _TABLE, asked=True,
)  # fmt: skip
LAG_SECONDS = Metric(
    "dataflow_lag_seconds", "gauge",
    "Age of the oldest record that a branch of a flow has not stored; absent while the source "
    "gives none of the unread records in time.", _TABLE, asked=True,
)  # fmt: skip
PARTITION_RECORDS = Metric(
    "dataflow_partition_lag_records", "gauge",
    "The same by partition, where the source numbers its records.", (*_TABLE, "partition"),
    asked=True,
)  # fmt: skip
PARTITION_SECONDS = Metric(
    "dataflow_partition_lag_seconds", "gauge",
    "The same by partition, where the source knows it.", (*_TABLE, "partition"), asked=True,
)  # fmt: skip
FRESHNESS = Metric(
    "dataflow_freshness_target_seconds", "gauge",
    "Within which a new record shall be in the target, as the manifest says.", asked=True,
)  # fmt: skip
RETAINED = Metric(
    "dataflow_slot_retained_bytes", "gauge",
    "Log that the source's server keeps for the flow.", asked=True, optional=True,
)  # fmt: skip
LAG_KNOWN = Metric(
    "dataflow_lag_known", "gauge",
    "1 where the lag of a flow could be found out, else 0.", asked=True,
)  # fmt: skip
LANE_PROGRESS = Metric(
    "dataflow_lane_progress_timestamp_seconds", "gauge",
    "When a flow of the lane was committed last, or had nothing new, in seconds since 1970.",
    ("lane",), of_flow=False, optional=True,
)  # fmt: skip

METRICS = tuple(value for value in globals().values() if isinstance(value, Metric))
BY_NAME = {metric.name: metric for metric in METRICS}
