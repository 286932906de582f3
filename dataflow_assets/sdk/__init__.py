"""What connectors build on: nothing here knows a system.

Who calls what, where (on the driver or in a task) and how often:

| Caller | Calls | Where | How often |
|---|---|---|---|
| manifests | fields of `database.DatabaseTable`, `raw_mode.RawSink` | driver | each load |
| the run | `polling.PolledSession.plan` | driver | each micro-batch |
| that session | `sql_table.PolledSqlTable`, in the SQL of a `SqlDialect` | driver | each question |
| the pass | `polling.PolledSource.batches`, which calls `read` | task | each part |
| `read` | `polling.PolledSource.describe`, `fetch` | task | each part |
| the run | `sink.session.TransactionalSession`, over a store | driver | each micro-batch |
| the pass | `sink.slice_commit.SliceWriter.write`, then `close` | task | each chunk; each slice |
| the writer | the shapes of `raw_rows` | task | each record |
| the writer | `key_folding`: the last row of each key | task | each batch of upserts |
| a `SliceStore` | `rejected_records.settle` | task | each slice, before its commit |
| a replay | `rejected_records.entry` or `sql_table.rejected.entries_of` | driver | each look |
| the IO manager | `table_frames.FrameSink.frames` | driver | each table of a user's asset |
| the maintenance job | `maintenance.Maintained.maintain` | driver | each table |
"""
