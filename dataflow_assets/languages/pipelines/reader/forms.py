"""The forms of what a pipeline does with records, for the hash of its flow; names stay for ever."""

from __future__ import annotations

from dataflow_assets.languages.common.canonical import Form, Forms
from dataflow_assets.languages.pipelines.rows import expressions, rows, table, types

FORMS = Forms(
    Form(expressions.PipelineColumnReference, "column", "name is_json"),
    Form(expressions.PipelineConstant, "constant", "value"),
    Form(expressions.Extract, "extract", "form given path"),
    Form(expressions.FromBase64, "from_base64", "given"),
    Form(rows.Envelope, "envelope", "topic id_keys"),
    Form(rows.PipelineOutput, "output", "name type expression nullable"),
    Form(rows.PipelineRow, "row", "outputs computed route"),
    Form(table.PipelineColumn, "table_column", "name type nullable computed"),
    Form(table.Index, "index", "name columns"),
    Form(table.PipelineTable, "table", "columns indexes key"),
    Form(types.PipelineType, "type", "name length scale"),
)
