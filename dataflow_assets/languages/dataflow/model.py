"""The `DataFlow` kind: every field of its envelope and spec, each with its verdict.

What a field's marker says is what happens: see `dataflow_assets.spec`. The blocks under `config`
are the connectors' own models.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from dataflow_assets.records.times.instant import duration, zone
from dataflow_assets.schedules.maintenance_window import MaintenanceWindow
from dataflow_assets.spec import Addition, Hint, Requires, Spec

GROUP, STALE_GROUP = "dataflow.dataflow.io", "dataflow.oss.io"
API_VERSION = f"{GROUP}/v1"
RESET = f"{GROUP}/reset-checkpoint"
SOURCE_CONNECTION = "dataflow-assets/source-connection"
SINK_CONNECTION = "dataflow-assets/sink-connection"
OWNERS = "dataflow-assets/owners"
LANE = "dataflow-assets/lane"
UPSTREAM = "dataflow-assets/upstream"
OF_LANES: tuple[tuple[str, ...], ...] = (("spec", "freshness"), ("metadata", "annotations", LANE))
"""What only a flow in a lane has a use for."""
UPSTREAM_KEY = re.compile(r"[^/\s]+(/[^/\s]+)*")
LANE_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")

_POD = Hint("there is no pod; Spark's own settings say where and with what the flow runs")
_EXACT = Hint("not needed: every commit stores rows and checkpoint together")


def _of_shape(pattern: str, wanted: str) -> AfterValidator:
    def check(value: str) -> str:
        if re.fullmatch(pattern, value) is None:
            raise ValueError(f"must be {wanted}")
        return value

    return AfterValidator(check)


_Name = Annotated[
    str,
    _of_shape(
        r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?",
        "letters a-z, digits, `-`, `_` and `.`, with a letter or digit at both ends, at most 253",
    ),
]
_Namespace = Annotated[
    str,
    _of_shape(
        r"[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?",
        "letters a-z, digits, `-` and `_`, with a letter or digit at both ends, at most 63",
    ),
]
_Duration = Annotated[
    str, _of_shape(r"-?(\d+(\.\d+)?(ns|us|µs|ms|s|m|h))+|0", "a duration such as 30s, 5m or 1h30m")
]


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None or not 1900 <= moment.year < 9000:
        raise ValueError("must be a time with its offset, such as 2026-01-31T02:00:00+01:00")
    return moment


def _read_by(parse: Callable[[str], object]) -> AfterValidator:
    """The text stays as it is; `parse` raises ValueError where it cannot be read."""

    def check(value: str) -> str:
        parse(value)
        return value

    return AfterValidator(check)


_Moment = Annotated[str, _read_by(_moment)]
_Length = Annotated[str, _read_by(duration)]
_Zone = Annotated[str, _read_by(zone)]


class Metadata(Spec):
    """Name and namespace of the flow. Keys that an API server adds are accepted and ignored."""

    name: _Name
    """With the namespace, the flow's identity: **renaming a flow resets it**: the renamed flow has
    no checkpoint and reads everything again."""
    namespace: _Namespace = "default"
    """Also the namespace of SecretRefs that name none."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Shown in the asset's metadata."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """`dataflow.dataflow.io/reset-checkpoint: "true"` does what `checkpointReset` does;
    `dataflow-assets/source-connection` and `dataflow-assets/sink-connection` name the connections
    in asset keys; `dataflow-assets/owners` is a comma-separated list; `dataflow-assets/lane: NAME`
    puts a flow into the lane NAME, with all others of that name (`shared` without the annotation):
    letters a-z, digits and `-`, at most 40; `dataflow-assets/upstream` is a comma-separated list of
    asset keys, such as `nessie/lake/shop/orders`: what the source is made of, which nothing else
    tells of a query."""
    uid: Annotated[Any, Hint("the API server's own; ignored")] = None
    """Written by Kubernetes."""
    generation: Annotated[Any, Hint("the API server's own; ignored")] = None
    """Written by Kubernetes."""
    resource_version: Annotated[Any, Hint("the API server's own; ignored")] = None
    """Written by Kubernetes."""
    creation_timestamp: Annotated[Any, Hint("the API server's own; ignored")] = None
    """Written by Kubernetes."""
    managed_fields: Annotated[Any, Hint("the API server's own; ignored")] = None
    """Written by Kubernetes."""
    finalizers: Annotated[Any, Hint("the API server's own; ignored")] = None
    """Written by Kubernetes."""
    owner_references: Annotated[Any, Hint("the API server's own; ignored")] = None
    """Written by Kubernetes."""


class End(Spec):
    """Source or sink: which connector, and its settings."""

    type: str
    """The connector's name."""
    config: dict[str, Any] = Field(min_length=1)
    """The connector's own settings."""


class Transformation(Spec):
    """One step."""

    type: str
    """The step's name."""
    config: dict[str, Any] = Field(default_factory=dict)
    """The step's own settings."""
    when: str = ""
    """A condition: where it is false, the record passes the step unchanged."""


class ErrorSink(End):
    """The error sink (dead letter queue): where records go that cannot be stored."""

    ack_policy: Literal["afterWrite", "never", "afterMainSinkSuccess"] = "afterWrite"
    """When such a record counts as done. `afterWrite`: once it is in the error sink. With the two
    other values the record is in the error sink, and the flow stops at the record all the same."""


class Maintenance(Spec):
    """Pauses the flow: by hand, or in a window. In it nothing is read or written."""

    start_time: Annotated[_Moment | None, Requires("duration")] = None
    """When the window first opens, in RFC 3339: `2026-01-31T02:00:00+01:00`."""
    duration: Annotated[_Length | None, Requires("start_time")] = None
    """How long it stays open, such as `2h` or `1h30m`, whatever clocks are set to meanwhile."""
    repeat: Annotated[Literal["daily", "weekly", "monthly"] | None, Requires("start_time")] = None
    """How often it opens again, at the same wall time of `timezone`. `monthly`: on the same day of
    the month, or on the last one of a shorter month. Without it the window opens once."""
    timezone: Annotated[_Zone | None, Requires("start_time")] = None
    """Name of the IANA time zone whose wall time the window follows; `UTC` without."""
    description: str | None = None
    """The name of the window, in each message that says why the flow pauses."""
    suspended: bool = False
    """`true` suspends the flow, whatever the window says. To run, it must be `false`, and the
    flow's sensor switched on."""

    @property
    def window(self) -> MaintenanceWindow | None:
        """Returns when the flow pauses by itself."""
        if self.start_time is None or self.duration is None:
            return None
        start, length = _moment(self.start_time), duration(self.duration)
        zone_of = zone(self.timezone or "UTC")
        return MaintenanceWindow(start, length, self.repeat, zone_of, self.description or "")

    def remarks(self) -> Iterator[tuple[str, str]]:
        """A description of nothing, an offset that is not the zone's, and a window without end."""
        window = self.window
        if window is None:
            yield "description", "for readers of the manifest only: there is no window"
            return
        here = window.first.astimezone(window.zone)
        if here.utcoffset() != window.first.utcoffset():
            yield "start_time", f"in {window.zone}, whose time the window follows, that is {here}"
        if window.is_open(here) and window.next_change(here) is None:
            yield "duration", "the window never closes: it opens again before it closes"


class DataFlowSpec(Spec):
    """The flow: source, steps, sinks and policies."""

    source: End
    """Where to read."""
    sink: End
    """Where to write."""
    transformations: tuple[Transformation, ...] = ()
    """Steps, applied in order."""
    errors: ErrorSink | None = None
    """Where records go that cannot be stored. Without it `onRejected` decides."""
    on_rejected: Annotated[Literal["fail", "table", "skip"] | None, Addition()] = None
    """Without `errors`. `fail` (the default): the flow stops at a rejected record and names it.
    `table`: the record is kept next to the target: in `dataflow_rejected` of the same database
    (PostgreSQL), `<table>_rejected` (ClickHouse, Iceberg, Nessie, Trino), the folder `_rejected`
    (files) or the topic `<topic>.rejected` (Kafka). `skip`: the record is counted and logged."""
    maintenance: Maintenance = Maintenance()
    """Pauses the flow."""
    checkpoint_reset: bool = False
    """Resets the checkpoint once; it is reset again only after the manifest has changed. So does
    the annotation `dataflow.dataflow.io/reset-checkpoint`."""
    max_rejected_percent: Annotated[float, Addition()] = Field(default=10.0, ge=0, le=100)
    """The flow stops when it rejects more than this share of its records."""
    freshness: Annotated[int, Addition()] = Field(default=10, ge=1, le=3600)
    """Seconds, 1 to 3600, within which a new record should be visible in the target. In a lane the
    flow that has waited longest, measured against its `freshness`, goes first; while little
    arrives, it commits two to four times in that time, at most once a second. A goal: nothing fails
    when it is missed."""
    max_records_per_batch: Annotated[int, Addition()] = Field(default=1_000_000, ge=1)
    """The most records of one partition in one micro-batch. `postgresql-cdc` counts 128 bytes of
    log for a record. Far behind the end of the log a micro-batch has up to four times as many,
    unless this or `maxBytesPerBatch` is lower than its default."""
    max_bytes_per_batch: Annotated[int, Addition()] = Field(default=64 * 1024 * 1024, ge=1)
    """The bytes of one partition in one micro-batch, estimated from its next records. A micro-batch
    with larger records than expected is cut off at twice this number. `postgresql-cdc` counts bytes
    of log, as above, and never divides a transaction."""
    replicas: Annotated[
        int, Hint("0 pauses the flow; above that, Spark's free slots decide, not this number")
    ] = Field(default=1, ge=0, le=2**31 - 1)
    """Processor pods; more than 1 only with a Kafka source."""
    strict_idempotency: bool = False
    """Refuses sinks that would store a record twice where it is read twice, after a reset for
    instance: sinks of other sources than Kafka need `upsertMode` and `conflictKey`."""
    checkpoint_persistence: Annotated[
        bool, Hint("the checkpoint is always stored beside the rows; `dataflow reset` starts over")
    ] = True
    """Whether a restart goes on where the flow stopped."""
    checkpoint_sync_on_ack: Annotated[bool, _EXACT] = False
    """Save the position right after each write."""
    checkpoint_save_interval: Annotated[_Duration, _EXACT] = "30s"
    """How often the position is saved."""
    ack_granularity: Annotated[Literal["batch", "message"], _EXACT] = "batch"
    """When a message counts as done."""
    collapse_batch_on_message_ack: Annotated[bool, _EXACT] = True
    """With `ackGranularity: message`: write rows one by one."""
    channel_buffer_size: Annotated[
        int,
        Hint("there are no queues to size; maxRecordsPerBatch and maxBytesPerBatch bound memory"),
    ] = Field(default=100, ge=-(2**31), le=2**31 - 1)
    """Capacity of the queues between the stages."""
    transform_workers: Annotated[
        int, Hint("each partition is one Spark task; Spark's free slots decide")
    ] = Field(default=1, ge=1, le=64)
    """Parallel workers for the steps."""
    resources: Annotated[dict[str, Any] | None, _POD] = None
    """The processor's requests and limits."""
    node_selector: Annotated[dict[str, str] | None, _POD] = None
    """Where the processor may run."""
    affinity: Annotated[dict[str, Any] | None, _POD] = None
    """Where the processor may run."""
    tolerations: Annotated[tuple[dict[str, Any], ...] | None, _POD] = None
    """Where the processor may run."""
    processor_image: Annotated[str | None, _POD] = None
    """The processor's image."""
    processor_version: Annotated[str | None, _POD] = None
    """The tag of the processor's image."""
    image_pull_secrets: Annotated[tuple[dict[str, Any], ...] | None, _POD] = None
    """Secrets to pull the image with."""

    @property
    def is_suspended(self) -> bool:
        """Returns whether the manifest itself keeps the flow from running."""
        return self.maintenance.suspended or self.replicas == 0


class Manifest(Spec):
    """The document."""

    api_version: str
    """`dataflow.dataflow.io/v1`."""
    kind: Literal["DataFlow"]
    """`DataFlow`."""
    metadata: Metadata
    """Name and namespace of the flow."""
    spec: DataFlowSpec
    """What the flow does."""
    status: Annotated[Any, Hint("the operator's own; ignored")] = None
    """Written by the operator."""
