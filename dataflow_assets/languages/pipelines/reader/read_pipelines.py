"""CREATE PIPELINE, ALTER PIPELINE, START, STOP and DROP."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dataflow_assets.languages.common.cursor import Cursor
from dataflow_assets.languages.common.keys import suggest
from dataflow_assets.languages.common.tokens import Place, Token, Unreadable
from dataflow_assets.languages.pipelines.reader.read_expressions import read_name
from dataflow_assets.languages.pipelines.reader.read_tables import plain_name
from dataflow_assets.languages.pipelines.reader.syntax import (
    AlterPipeline,
    CreatePipeline,
    DropPipeline,
    Json,
    Mapped,
    Noted,
    PipelineOptions,
    Switch,
)

CONNECT = ("KAFKACONNECT", "CONNECTOR")
OTHERS = {
    "KAFKA": "use the source kafka of a DataFlow manifest",
    "S3": "use the source files of a DataFlow manifest",
    "FS": "use the source files of a DataFlow manifest",
    "AZURE": "there is no source for it",
    "GCS": "there is no source for it",
    "HDFS": "there is no source for it",
    "LINK": "there is no source for it",
    "MYSQL": "there is no source for it",
    "MONGODB": "there is no source for it",
}
_ERRORS = ("ALL", "CONSTRAINT", "DUPLICATE", "PARSER")


def read_create(
    cursor: Cursor, place: Place, *, replaces: bool, inferred: bool
) -> tuple[CreatePipeline, Sequence[Noted]]:
    """Reads on after PIPELINE. Raises Unreadable at what is not supported."""
    exists = cursor.takes("IF", "NOT", "EXISTS")
    name = plain_name(cursor, "a pipeline")
    cursor.expect("AS")
    cursor.expect("LOAD")
    cursor.expect("DATA")
    word = cursor.next.text.upper()
    if word in OTHERS:
        cursor.fail(f"LOAD DATA {word} is not supported: {OTHERS[word]}")
    cursor.expect(*CONNECT)
    cursor.text("the name of a connector")
    statement = CreatePipeline(place, name, PipelineOptions(), inferred, replaces, exists)
    notes: list[Noted] = []
    while not cursor.at_end:
        statement = _clause(cursor, statement, notes)
    return statement, notes


def _clause(cursor: Cursor, statement: CreatePipeline, notes: list[Noted]) -> CreatePipeline:
    token = cursor.next
    word = token.text.upper() if token.kind == "word" else ""
    if cursor.takes("INTO", "TABLE"):
        return replace(statement, table=plain_name(cursor, "a table"))
    if cursor.takes("INTO", "PROCEDURE"):
        return replace(statement, procedure=plain_name(cursor, "a procedure"))
    if cursor.takes("FORMAT"):
        return replace(statement, mapped=_format(cursor))
    if cursor.takes("SKIP", "ALL", "ERRORS"):
        return replace(statement, skips_errors=True)
    if word == "SKIP":
        cursor.fail("only SKIP ALL ERRORS is supported: which rows fail is said by the target")
    if word in ("AGGREGATOR", "RESOURCE", "OUT_OF_ORDER", "DISABLE", "ENABLE"):
        notes.append(Noted(token.place, word, "has no effect here"))
        _skip_clause(cursor)
        return statement
    if word == "WITH":
        cursor.fail("WITH TRANSFORM is not supported: it starts a program on the server")
    if word == "INTO":
        cursor.fail("INTO needs one more word: write INTO TABLE name or INTO PROCEDURE name")
    if word in ("REPLACE", "IGNORE", "ON", "SET", "WHERE") or token.text == "(":
        cursor.fail(
            f"{token} is not supported in CREATE PIPELINE: rows are appended as they are; "
            "columns are chosen by FORMAT AVRO (column <- path, ...) or by a procedure"
        )
    return replace(statement, options=read_option(cursor, statement.options, notes))


def _skip_clause(cursor: Cursor) -> None:
    """OUT_OF_ORDER OPTIMIZATION, DISABLE OUT_OF_ORDER OPTIMIZATION, RESOURCE POOL name."""
    if cursor.take().text.upper() in ("DISABLE", "ENABLE"):
        cursor.expect("OUT_OF_ORDER")
    if cursor.takes("POOL"):
        cursor.take()
    cursor.takes("OPTIMIZATION")


def read_option(
    cursor: Cursor, pipeline_options: PipelineOptions, notes: list[Noted]
) -> PipelineOptions:
    """One of the options that CREATE and ALTER share."""
    token = cursor.next
    if cursor.takes("CONFIG"):
        return replace(pipeline_options, config=_json(cursor, "CONFIG"))
    if cursor.takes("CREDENTIALS"):
        return replace(pipeline_options, credentials=_json(cursor, "CREDENTIALS"))
    if cursor.takes("BATCH_INTERVAL"):
        return replace(pipeline_options, batch_interval=_milliseconds(cursor))
    if cursor.takes("MAX_OFFSETS_PER_BATCH_PARTITION"):
        return replace(pipeline_options, most_rows=_positive(cursor, "a number of records"))
    if cursor.takes("STOP_ON_ERROR"):
        return replace(
            pipeline_options, stop_on_error=cursor.expect("ON", "OFF").text.upper() == "ON"
        )
    if cursor.takes("MAX_PARTITIONS_PER_BATCH") or cursor.takes("MAX_RETRIES_PER_BATCH_PARTITION"):
        _positive(cursor, "a number", least=0)
        what = token.text.upper()
        message = (
            "has no effect: all partitions are read side by side"
            if "PARTITIONS" in what
            else "has no effect: what may pass by itself is tried again with growing pauses"
        )
        notes.append(Noted(token.place, what, message))
        return pipeline_options
    options = ("CONFIG", "CREDENTIALS", "BATCH_INTERVAL", "STOP_ON_ERROR", "INTO", "FORMAT", "SKIP")
    if token.kind == "word":
        cursor.fail(f"the clause {token} is not known; {suggest(token.text, options)}")
    return cursor.fail(f"expected a clause of the pipeline, or ;, found {token}")


def _milliseconds(cursor: Cursor) -> int:
    number = _positive(cursor, "milliseconds", least=0)
    if cursor.next.kind == "word" and cursor.next.text.lower() in ("ms", "s", "sec", "seconds"):
        cursor.fail("BATCH_INTERVAL is in milliseconds, without a unit: 1000 is a second")
    return number


def _positive(cursor: Cursor, what: str, *, least: int = 1) -> int:
    place, number = cursor.place, cursor.number(what)
    if number < least:
        raise Unreadable(place, f"must be at least {least}")
    return number


def _json(cursor: Cursor, what: str) -> Json:
    """A JSON object; no message quotes it."""
    if cursor.next.says("::"):
        cursor.fail(f"{what} ::key = value is not supported: write all of it as JSON")
    place = cursor.place
    text = cursor.text(f"{what} as JSON")
    try:
        parsed = json.loads(text, object_pairs_hook=lambda pairs: _unique(pairs, what))
    except json.JSONDecodeError as error:
        raise Unreadable(_within(text, error.pos, place), _not_json(what, text, error)) from None
    except (_Twice, RecursionError) as error:
        raise Unreadable(place, str(error) or f"{what} is nested too deeply") from None
    if not isinstance(parsed, dict):
        raise Unreadable(place, f"{what} must be a JSON object")
    if nested := [key for key, value in parsed.items() if isinstance(value, dict | list)]:
        message = f"{what}: {nested[0]} must be a text, a number, true or false"
        raise Unreadable(place, message)
    values = {key: _as_text(value) for key, value in parsed.items() if value is not None}
    return Json(place, values, {key: _place_of(key, text, place) for key in values})


def _place_of(key: str, text: str, begin: Place) -> Place:
    at = text.find(json.dumps(key, ensure_ascii=False))
    return begin if at < 0 else _within(text, at, begin)


def _within(text: str, at: int, begin: Place) -> Place:
    """The place of a character of a text that begins with its quote."""
    lines = text[:at].split("\n")
    first = begin.column + 1 if len(lines) == 1 else 1
    return Place(begin.line + len(lines) - 1, first + len(lines[-1]))


def _not_json(what: str, text: str, error: json.JSONDecodeError) -> str:
    before, after = text[: error.pos].rstrip(), text[error.pos :].lstrip()
    if not after:
        return f"{what} is not JSON: the text ends here; inside of it quotes are double ones"
    if before.endswith(",") and after.startswith("}"):
        return f"{what} is not JSON: remove the comma before this brace"
    if "delimiter" in error.msg:
        return f"{what} is not JSON: a comma or a quote is missing before this"
    return f"{what} is not JSON: {error.msg}"


class _Twice(ValueError):
    """A key that is there twice."""


def _unique(pairs: list[tuple[str, Any]], what: str) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise _Twice(f"{what}: the key {twice} is a duplicate")
    return dict(pairs)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _format(cursor: Cursor) -> tuple[Mapped, ...]:
    if not cursor.next.says("AVRO", "JSON"):
        cursor.fail(f"FORMAT {cursor.next} is not supported: allowed are AVRO and JSON")
    cursor.take()
    if not cursor.sees("("):
        return ()
    return cursor.list_of(_mapping)


def _mapping(cursor: Cursor) -> Mapped:
    column = read_name(cursor, "a column")
    cursor.expect("<-")
    if cursor.next.says("%"):
        cursor.fail("% (the whole record) is not supported: the columns are topic, id and record")
    path = [_part(cursor)]
    while cursor.takes("::"):
        path.append(_part(cursor))
    if cursor.sees("DEFAULT"):
        cursor.fail("DEFAULT is not supported: a value that is missing is null")
    return Mapped(column, tuple(path))


def _part(cursor: Cursor) -> str:
    token = cursor.next
    if token.kind not in ("word", "quoted"):
        cursor.fail(f"expected a part of a path, found {token}")
    return cursor.take().text


def read_switch(cursor: Cursor, word: Token) -> Switch:
    on = word.text.upper() == "START"
    if cursor.takes("ALL", "PIPELINES") or (on and cursor.takes("FAILED", "PIPELINES")):
        return Switch(word.place, None, on)
    cursor.expect("PIPELINE")
    lenient = cursor.takes("IF", "NOT", "RUNNING") if on else cursor.takes("IF", "RUNNING")
    name = plain_name(cursor, "a pipeline")
    if on and cursor.sees("FOREGROUND"):
        cursor.fail("FOREGROUND is not supported in a file: `dataflow run` reads what is there")
    cursor.takes("DETACH")
    return Switch(word.place, name, on, lenient)


def read_drop(cursor: Cursor, word: Token) -> DropPipeline:
    if not cursor.takes("PIPELINE"):
        cursor.fail(
            f"DROP {cursor.next} is not supported: a file says what there is; leave it out instead"
        )
    exists = cursor.takes("IF", "EXISTS")
    return DropPipeline(word.place, plain_name(cursor, "a pipeline"), exists)


def read_alter(cursor: Cursor, word: Token) -> tuple[AlterPipeline, Sequence[Noted]]:
    name = plain_name(cursor, "a pipeline")
    if not cursor.takes("SET"):
        cursor.fail(f"ALTER PIPELINE {cursor.next} is not supported: allowed is SET")
    if cursor.sees("OFFSETS"):
        cursor.fail(
            "SET OFFSETS is not supported in a file, which would do it at every start: run "
            "`dataflow run --from earliest`, or `--from latest`, once"
        )
    notes: list[Noted] = []
    options = read_option(cursor, PipelineOptions(), notes)
    while not cursor.at_end:
        cursor.takes(",")
        options = read_option(cursor, options, notes)
    return AlterPipeline(word.place, name, options), notes
