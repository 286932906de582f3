"""The forms of what a pipeline does with records, for the hash of its flow; names stay for ever."""

from __future__ import annotations

from dataflow_assets.languages.common.canonical import Form, Forms
from dataflow_assets.languages.pipelines.rows import expressions, rows, table, types

FORMS = Forms(
    Form(expressions.Column, "column", "name is_json"),
    Form(expressions.Constant, "constant", "value"),
    Form(expressions.Extract, "extract", "form given path"),
    Form(expressions.FromBase64, "from_base64", "given"),
    Form(rows.Envelope, "envelope", "topic id_keys"),
    Form(rows.Output, "output", "name type expression nullable"),
    Form(rows.Row, "row", "outputs computed route"),
    Form(table.Column, "table_column", "name type nullable computed"),
    Form(table.Index, "index", "name columns"),
    Form(table.Table, "table", "columns indexes key"),
    Form(types.Type, "type", "name length scale"),
)
