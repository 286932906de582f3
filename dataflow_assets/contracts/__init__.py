"""What a source, a sink and a writer promise each other: signatures and promises, nothing else.

The life of one micro-batch (DESIGN.md section 2): the driver plans a span with fixed upper bounds,
opens the sink's epoch, runs ONE pass over the span on Spark, and finishes only when the whole pass
succeeded. The sink's checkpoint, stored beside the rows, is the truth.

A *position* says what has been consumed. For offset slices it is an integer: everything below it is
done (Kafka's "next offset"). For part slices it is an opaque string that only the source reads;
sinks test it for equality and nothing else.
"""

from dataflow_assets.contracts.address import (
    Address,
)
from dataflow_assets.contracts.checkpoint import (
    Checkpoint,
    Lag,
    Run,
    Totals,
    local_now,
    utc_now,
)
from dataflow_assets.contracts.ends import (
    Connector,
    MessageSource,
    Shape,
    Sink,
    Source,
)
from dataflow_assets.contracts.rejects import (
    REPLAY,
    Entries,
    Entry,
    ErrorRecord,
    ErrorStore,
    Rejection,
    Rejects,
    attempt_of,
    next_attempt,
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
from dataflow_assets.contracts.sessions import (
    SinkSession,
    SourceSession,
)
from dataflow_assets.contracts.sharing import (
    refuse_shared,
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
from dataflow_assets.contracts.tasks import (
    Chunk,
    Receipt,
    Sent,
    Target,
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
    "ErrorRecord",
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
    "next_attempt",
    "refuse_shared",
    "utc_now",
]
