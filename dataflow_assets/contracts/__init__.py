"""What a source, a sink and a writer promise each other: signatures and promises, nothing else.

The life of one micro-batch: the driver plans a span with fixed upper bounds,
opens the sink's epoch, runs ONE pass over the span on Spark, and finishes only when the whole pass
succeeded. The sink's checkpoint, stored beside the rows, is the truth.

A *position* says what has been consumed. For offset slices it is an integer: everything below it is
done (Kafka's "next offset"). For part slices it is an opaque string that only the source reads;
sinks test it for equality and nothing else.
"""

from dataflow_assets.contracts.checkpoint import (
    Checkpoint,
    Lag,
    Run,
    Totals,
    local_now,
    next_reading,
    utc_now,
)
from dataflow_assets.contracts.connector import (
    Address,
    Connector,
)
from dataflow_assets.contracts.entries import (
    REPLAY,
    Entries,
    Entry,
    EntryName,
    ErrorRecord,
    ErrorSink,
    ErrorStore,
    attempt_of,
    named_in,
    next_attempt,
    part_of,
)
from dataflow_assets.contracts.schema import (
    ABSENT,
    DECIMAL,
    DELETE,
    EVERYTHING,
    HAS_DEFAULT,
    INFINITE,
    INSERT,
    KEY,
    KIND,
    MAX_LENGTH,
    MESSAGES,
    METADATA,
    NO_NUL,
    OFFSET,
    OP,
    SYSTEM_COLUMNS,
    TYPED,
    UPDATE,
    N,
    TypeRow,
    kind_of,
)
from dataflow_assets.contracts.sink import (
    Shape,
    Sink,
)
from dataflow_assets.contracts.sink_session import (
    SinkSession,
)
from dataflow_assets.contracts.slices import (
    PART,
    Cut,
    Limit,
    OffsetSlice,
    PartSlice,
    Position,
    Positions,
    Slice,
    Span,
    divided,
    folded,
    lasting,
)
from dataflow_assets.contracts.source import (
    MessageSource,
    Source,
)
from dataflow_assets.contracts.source_session import (
    SourceSession,
)
from dataflow_assets.contracts.target import (
    Rejects,
    Target,
    refuse_shared,
)
from dataflow_assets.contracts.tasks import (
    Chunk,
    Receipt,
    Rejection,
    Sent,
    Ticket,
    Writer,
)

__all__ = [
    "ABSENT",
    "DECIMAL",
    "DELETE",
    "EVERYTHING",
    "HAS_DEFAULT",
    "INFINITE",
    "INSERT",
    "KEY",
    "KIND",
    "MAX_LENGTH",
    "MESSAGES",
    "METADATA",
    "NO_NUL",
    "OFFSET",
    "OP",
    "PART",
    "REPLAY",
    "SYSTEM_COLUMNS",
    "TYPED",
    "UPDATE",
    "Address",
    "Checkpoint",
    "Chunk",
    "Connector",
    "Cut",
    "Entries",
    "Entry",
    "EntryName",
    "ErrorRecord",
    "ErrorSink",
    "ErrorStore",
    "Lag",
    "Limit",
    "MessageSource",
    "N",
    "OffsetSlice",
    "PartSlice",
    "Position",
    "Positions",
    "Receipt",
    "Rejection",
    "Rejects",
    "Run",
    "Sent",
    "Shape",
    "Sink",
    "SinkSession",
    "Slice",
    "Source",
    "SourceSession",
    "Span",
    "Target",
    "Ticket",
    "Totals",
    "TypeRow",
    "Writer",
    "attempt_of",
    "divided",
    "folded",
    "kind_of",
    "lasting",
    "local_now",
    "named_in",
    "next_attempt",
    "next_reading",
    "part_of",
    "refuse_shared",
    "utc_now",
]
