"""The `DataFlow` kind: every field of its envelope and spec, each with its verdict.

What a field's marker says is what happens: see `dataflow_assets.spec`. The blocks under `config`
are the connectors' own models.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from dataflow_assets.spec import Addition, Hint, Refused, Spec

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


_WINDOWS = "maintenance windows; `suspended` works, and so does the sensor's switch"


class Maintenance(Spec):
    """Suspends the flow."""

    start_time: Annotated[str | None, Refused(_WINDOWS)] = None
    """RFC 3339: when the window first opens."""
    duration: Annotated[str | None, Refused(_WINDOWS)] = None
    """How long it stays open, such as `2h`."""
    repeat: Annotated[Literal["daily", "weekly", "monthly"] | None, Refused(_WINDOWS)] = None
    """How often it opens again."""
    timezone: Annotated[str | None, Refused(_WINDOWS)] = None
    """IANA name of the zone that the window is meant in."""
    description: Annotated[str | None, Hint("for readers of the manifest only")] = None
    """Free text."""
    suspended: bool = False
    """`true` suspends the flow. To run, it must be `false`, and the flow's sensor switched on."""


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
    """Suspends the flow."""
    checkpoint_reset: bool = False
    """Resets the checkpoint once; it is reset again only after the manifest has changed."""
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
    strict_idempotency: Annotated[
        bool, Hint("has no effect: the page of each sink says whether it stores a record once")
    ] = False
    """Refuse sinks that would store a record twice when it is read twice."""
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
