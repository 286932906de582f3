"""SingleStore's JSON functions as functions of PostgreSQL, in the schema of the tables.

Generated columns call them, and so may people, by the names that SingleStore gives them. None of
them fails: a value that is none of what is asked for is null.
"""

from __future__ import annotations

from collections.abc import Iterator

from dataflow_assets.connectors.postgresql.client import Link, lock_name, quote

_FORMS = {"json": "jsonb", "string": "text", "double": "float8", "bigint": "bigint"}
_NUMBER = r"^\s*[+-]?(\d{1,255}\.?\d{0,255}|\.\d{1,255})([eE][+-]?\d{1,3})?\s*$"
_AS = "LANGUAGE sql IMMUTABLE PARALLEL SAFE AS"
_TRIES = "LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS"
_PATH = "VARIADIC path text[] DEFAULT '{}'"
_FUNCTIONS = {
    "dataflow_number(text)": (
        f"dataflow_number(t text) RETURNS numeric {_AS} "
        f"$$ SELECT CASE WHEN t ~ '{_NUMBER}' THEN t::numeric END $$"
    ),
    "dataflow_number(jsonb)": (
        f"dataflow_number(j jsonb) RETURNS numeric {_AS} $$ SELECT CASE jsonb_typeof(j) "
        "WHEN 'boolean' THEN CASE WHEN j = 'true' THEN 1 ELSE 0 END "
        "WHEN 'number' THEN {s}.dataflow_number(j #>> '{{}}') "
        "WHEN 'string' THEN {s}.dataflow_number(j #>> '{{}}') END $$"
    ),
    "dataflow_double(numeric)": (
        f"dataflow_double(n numeric) RETURNS float8 {_AS} $$ SELECT CASE "
        "WHEN abs(n) < 1e-300 THEN 0 WHEN abs(n) < 1e308 THEN n::float8 END $$"
    ),
    "dataflow_boolean(text,numeric)": (
        f"dataflow_boolean(t text, n numeric) RETURNS boolean {_AS} $$ SELECT CASE "
        "WHEN lower(t) IN ('true', 'false') THEN lower(t) = 'true' ELSE n <> 0 END $$"
    ),
    "dataflow_integer(numeric,integer)": (
        f"dataflow_integer(n numeric, bits integer) RETURNS bigint {_AS} $$ SELECT CASE WHEN "
        "round(n) >= -(2::numeric ^ (bits - 1)) AND round(n) < 2::numeric ^ (bits - 1) "
        "THEN round(n)::bigint END $$"
    ),
    "dataflow_decimal(numeric,integer,integer)": (
        f"dataflow_decimal(n numeric, digits integer, scale integer) RETURNS numeric {_AS} "
        "$$ SELECT CASE WHEN abs(round(n, scale)) < 10::numeric ^ (digits - scale) "
        "THEN round(n, scale) END $$"
    ),
    "dataflow_json(text)": (
        f"dataflow_json(t text) RETURNS jsonb {_TRIES} $$ BEGIN RETURN t::jsonb; "
        "EXCEPTION WHEN data_exception OR program_limit_exceeded THEN RETURN NULL; END $$"
    ),
    "from_base64(text)": (
        f"from_base64(t text) RETURNS text {_TRIES} "
        "$$ BEGIN RETURN convert_from(decode(t, 'base64'), 'UTF8'); "
        "EXCEPTION WHEN data_exception THEN RETURN NULL; END $$"
    ),
}
_EXTRACTS = {
    "json": "nullif(j #> path, 'null')",
    "string": (
        "CASE jsonb_typeof(j #> path) WHEN 'number' "
        "THEN trim_scale((j #>> path)::numeric)::text ELSE j #>> path END"
    ),
    "double": "{s}.dataflow_double({s}.dataflow_number(j #> path))",
    "bigint": "{s}.dataflow_integer({s}.dataflow_number(j #> path), 64)",
}
_BODY = "SELECT prosrc FROM pg_proc WHERE oid = to_regprocedure($1::text)"


def prepare(link: Link, schema: str) -> None:
    """Makes the functions that are missing or have another body; in the caller's transaction.

    Pipelines that open at once would each find them missing: they wait for each other.
    """
    if any(_replacements(link, schema)):
        lock_name(link, f"{schema}.dataflow_number")
        for statement in _replacements(link, schema):
            link.execute(statement)


def _replacements(link: Link, schema: str) -> Iterator[str]:
    for signature, statement in _statements().items():
        text = statement.replace("{s}", quote(schema)).replace("{{}}", "{}")
        stored = link.execute(_BODY, f"{quote(schema)}.{signature}")
        if [(text.split("$$")[1],)] != [tuple(row) for row in stored]:
            yield f"CREATE OR REPLACE FUNCTION {quote(schema)}.{text}"


def _statements() -> dict[str, str]:
    statements = dict(_FUNCTIONS)
    for form, made in _FORMS.items():
        name = f"json_extract_{form}"
        of_json = f"{name}(j jsonb, {_PATH}) RETURNS {made} {_AS} $$ SELECT {_EXTRACTS[form]} $$"
        of_text = (
            f"{name}(t text, {_PATH}) RETURNS {made} {_AS} "
            f"$$ SELECT {{s}}.{name}({{s}}.dataflow_json(t), VARIADIC path) $$"
        )
        statements |= {f"{name}(jsonb,text[])": of_json, f"{name}(text,text[])": of_text}
    return statements
