"""What a source, a sink and a writer promise each other: signatures and promises, nothing else.

`source`, `sink` and `sink_session` have what all have. What only some can do is a class each: of
sources in `capabilities` (sessions), `declared` (sources), `reading` (in tasks) and `looking` (many
at once), of sinks in `sink_capabilities`, and of the ends of languages in `languages/promises`.

The life of one micro-batch: the driver plans a span with fixed upper bounds, opens the sink's
epoch, runs one pass over the span on Spark, and finishes only when the whole pass succeeded. The
sink's checkpoint, stored beside the rows, is the truth.

A *position* says what has been consumed. For offset slices it is an integer: everything below it is
done (Kafka's "next offset"). For part slices it is an opaque string that only the source reads;
sinks test it for equality and nothing else.

Who calls what when, in the order of a run:

| called | by | how often |
|---|---|---|
| `Connector.address`, `spellings` | whoever loads manifests, no network | once for each load |
| `Source.open`, `Sink.open` | the driver | once for each attempt of a run, and each branch |
| `ErrorStore.prepare` | the driver, before anything is read | once for each attempt |
| `SinkSession.restart`, `TargetTable.schema`, `create` | the driver, when a branch opens | once |
| `ChecksTarget.check_target` | the driver, when a branch opens that will hold log | once |
| `TakesOverPositions.take_over` | the driver, with what that gave | once |
| `TakesOverPositions.understands` | the driver, with a checkpoint | once |
| `SourceSession.plan` | the driver, before anything is read | once for each micro-batch |
| `SinkSession.begin`, `divide`, `ticket` | the driver, between plan and pass | the same |
| `ChoosesReader.reader`, else `SparkFrames.frame` | the driver, of messages | the same |
| `ReadsMessages.messages_together` | a task | once for all slices of one key |
| `ReadsParts.batches`, `FormsMessages.message_form` | a task | once for each part |
| `RawSink.shape`, `Sink.writer` | a task | once for each slice and attempt of the task |
| `Writer.write` | a task | once for each batch of rows |
| `ErrorStore.store` | a task, before the commit of the rows | at most once for each commit |
| `ConfirmsTopics.confirm` | a task, before the commit of the rows | once for each slice |
| `Writer.close`, or `abort` | a task, at the end of its slice | once |
| `StagesWithSpark.stage` | the driver, between pass and finish | the same |
| `SinkSession.finish` | the driver, once the whole pass succeeded | the same |
| `SourceSession.acknowledge` | the driver, once every branch has finished | the same, or never |
| `SourceSession.lag` | the driver with each report, `dataflow status`, the lag sensor | by time |
| `SourceSession.close`, `SinkSession.close` | the driver | at the end of each attempt |
| `SourceSession.end` | the driver, of a run that has an end | once |
| `Sink.peek` | reset, preview, replay and the tables of assets, beside a run | once each |
| `AdaptsToBranches.for_branches` | whoever loads manifests | once |
| `Source.traits` | whoever loads manifests; sensors; the driver; tasks | each time |
| `Connector.connection_group` | a look at many flows; a task that reads many slices | each time |
| `open_together`, `peek_together` | the same, of equal `connection_group` | with each look |
| `EndsOfMany.ends_together` | the same, while flows are idle | every second or so |
| `LagsOfMany.lags_together` | `dataflow status`, the lag sensor | with each look |
| `Entries.pending`, `mark_replayed` | a replay, on the driver | before, after the commit of rows |
"""

from dataflow_assets.contracts.checkpoint import (
    Checkpoint,
    Lag,
    Run,
    Totals,
    local_now,
    next_reading,
    oldest,
    utc_now,
)
from dataflow_assets.contracts.connector import (
    Address,
    Connector,
)
from dataflow_assets.contracts.entries import (
    Entries,
    Entry,
    EntryName,
    ErrorRecord,
    ErrorSink,
    ErrorStore,
)
from dataflow_assets.contracts.place import (
    Place,
    digest,
)
from dataflow_assets.contracts.schema import (
    ABSENT,
    DELETE,
    EVERYTHING,
    HEADER_LIST,
    INSERT,
    MESSAGES,
    OFFSET,
    ONE_ROW,
    OP,
    REFUSED_ROW,
    ROWS,
    SOURCE,
    SYSTEM_COLUMNS,
    UNKNOWN,
    UPDATE,
    Kind,
    N,
    Note,
    TypeRow,
    checked_name,
    element_of,
    kind_of,
    metadata_column,
    system_name,
    written_name,
)
from dataflow_assets.contracts.sink import (
    Sink,
    SinkTraits,
)
from dataflow_assets.contracts.sink_capabilities import (
    AddsColumns,
    ChecksTarget,
    CountsFiles,
    CountsRows,
    PeeksTogether,
    StagesWithSpark,
)
from dataflow_assets.contracts.sink_session import SinkSession, TargetTable
from dataflow_assets.contracts.slices import (
    PART,
    PARTS,
    Cut,
    Limit,
    OffsetSlice,
    PartSlice,
    Position,
    Positions,
    Slice,
    Span,
    divide,
    fold_parts,
    lasting,
)
from dataflow_assets.contracts.source import (
    NewColumnRule,
    Source,
    SourceSession,
    SourceTraits,
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
    "DELETE",
    "EVERYTHING",
    "HEADER_LIST",
    "INSERT",
    "MESSAGES",
    "OFFSET",
    "ONE_ROW",
    "OP",
    "PART",
    "PARTS",
    "REFUSED_ROW",
    "ROWS",
    "SOURCE",
    "SYSTEM_COLUMNS",
    "UNKNOWN",
    "UPDATE",
    "Address",
    "AddsColumns",
    "Checkpoint",
    "ChecksTarget",
    "Chunk",
    "Connector",
    "CountsFiles",
    "CountsRows",
    "Cut",
    "Entries",
    "Entry",
    "EntryName",
    "ErrorRecord",
    "ErrorSink",
    "ErrorStore",
    "Kind",
    "Lag",
    "Limit",
    "N",
    "NewColumnRule",
    "Note",
    "OffsetSlice",
    "PartSlice",
    "PeeksTogether",
    "Place",
    "Position",
    "Positions",
    "Receipt",
    "Rejection",
    "Rejects",
    "Run",
    "Sent",
    "Sink",
    "SinkSession",
    "SinkTraits",
    "Slice",
    "Source",
    "SourceSession",
    "SourceTraits",
    "Span",
    "StagesWithSpark",
    "Target",
    "TargetTable",
    "Ticket",
    "Totals",
    "TypeRow",
    "Writer",
    "checked_name",
    "digest",
    "divide",
    "element_of",
    "fold_parts",
    "kind_of",
    "lasting",
    "local_now",
    "metadata_column",
    "next_reading",
    "oldest",
    "refuse_shared",
    "system_name",
    "utc_now",
    "written_name",
]
