"""Checks keys of a Tableflow file against each other."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence

from dataflow_assets.connectors.iceberg.layout import parse_term
from dataflow_assets.connectors.iceberg.options import RECORD_TIME
from dataflow_assets.errors import Finding
from dataflow_assets.languages.common.documents import Document, Path
from dataflow_assets.languages.common.keys import suggest
from dataflow_assets.languages.tableflow import model, types

_AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PAIRS = (
    ("sasl_username_env", "sasl_password_env"),
    ("mtls_client_cert_env", "mtls_client_key_env"),
)
_OF_REGISTRY = (("username_env", "password_env"), ("mtls_client_cert_env", "mtls_client_key_env"))
_ALIKE = (
    "which readers such as Spark and Trino do not tell apart: they refuse the table; rename one"
)
_OF_TLS = (
    "tls_insecure_skip_verify",
    "mtls_client_cert_env",
    "mtls_client_key_env",
    "mtls_server_ca_cert_env",
)


def of_cluster(document: Document, at: Path, names: Mapping[str, int]) -> Iterator[Finding]:
    """A name that another cluster has, and credentials that do not belong together.

    Args:
        document: the file.
        at: the place of the cluster.
        names: of the clusters before it, with their numbers.
    """
    name = document.get(*at, "name")
    if isinstance(name, str) and name in names:
        first = document.places["source_clusters", names[name]].line
        message = f"is a duplicate; first in line {first}"
        yield document.finding((*at, "name"), message)
    place = (*at, "credentials")
    value = document.get(*place)
    if not isinstance(value, dict):
        return
    yield from _pairs(document, place, value, _PAIRS)
    for key in _OF_TLS:
        if value.get(key) and value.get("use_tls") is not True:
            yield document.finding((*place, key), "needs use_tls: true", key=True)
    if "sasl_mechanism" in value and not any(key in value for key in _PAIRS[0]):
        message = "has no effect without sasl_username_env and sasl_password_env: set them"
        yield document.finding((*place, "sasl_mechanism"), message, key=True)


def of_registry(document: Document, at: Path) -> Iterator[Finding]:
    """Credentials of a schema registry that do not belong together; `at`: its place."""
    value = document.get(*at)
    if not isinstance(value, dict):
        return
    yield from _pairs(document, at, value, _OF_REGISTRY)
    if "bearer_token_env" in value and "username_env" in value:
        message = "and username_env exclude each other: keep one"
        yield document.finding((*at, "bearer_token_env"), message, key=True)
    for key in _OF_TLS:
        if value.get(key) and not str(value.get("url")).startswith("https:"):
            message = "needs an url that begins with https:"
            yield document.finding((*at, key), message, key=True)


def _pairs(
    document: Document, at: Path, given: Mapping[str, object], pairs: Sequence[tuple[str, str]]
) -> Iterator[Finding]:
    for one, other in (*pairs, *(pair[::-1] for pair in pairs)):
        if one in given and other not in given:
            yield document.finding((*at, one), f"belongs to {other}: set both or none", key=True)


def of_schema(document: Document, at: Path, table: model.TableflowTable) -> Iterator[Finding]:
    """Finds what is wrong with the fields of a table beside each other."""
    fields = list(types.walk(table.fields, (*at, "schema")))
    yield from _ids(document, fields)
    names: dict[Path, set[str]] = {}
    for place, one, depth in fields:
        yield from _inside(document, place, one)
        if one.name in names.setdefault(place[:-1], set()):
            yield document.finding((*place, "name"), "is the name of another field beside it")
        names[place[:-1]].add(one.name)
        if depth and types.only_of_columns(one.type):
            yield document.finding((*place, "type"), "is allowed for columns only, not inside them")
        if not depth and one.name == RECORD_TIME:
            message = "is the column that holds the time of each record, which is always there"
            yield document.finding((*place, "name"), message)
        if table.source_format == "avro" and not _AVRO_NAME.fullmatch(one.name):
            message = "is no name in Avro: letters a-z, digits and `_`, no digit first"
            yield document.finding((*place, "name"), message)


def alike(document: Document, at: Path, table: model.TableflowTable) -> Iterator[Finding]:
    """A note at each name that another one beside it has, but for capital letters."""
    names: dict[tuple[Path, str], str] = {}
    for place, one, _ in types.walk(table.fields, (*at, "schema")):
        first = names.setdefault((place[:-1], one.name.casefold()), one.name)
        if first != one.name:
            message = f"differs from {first} by capital letters alone, {_ALIKE}"
            yield document.finding((*place, "name"), message)


def of_mode(
    document: Document, at: Path, table: model.TableflowTable, registries: Container[str]
) -> Iterator[Finding]:
    """Finds the columns of a table that are not where `schema_mode` says.

    Args:
        document: the file.
        at: the place of the table.
        table: the table.
        registries: the names of the clusters that have a schema registry.
    """
    if table.wire_format and table.source_format == "avro":
        message = "is for json: of Avro a schema's id is removed where there is one; leave it out"
        yield document.finding((*at, "wire_format"), message, key=True)
    if table.schema_mode == "inline":
        if table.schema_ is None:
            yield document.finding((*at, "schema"), "is required with schema_mode: inline")
        if table.schema_subject is not None:
            message = "is for schema_mode: registry"
            yield document.finding((*at, "schema_subject"), message, key=True)
        return
    if table.schema_ is not None:
        message = "is for schema_mode: inline; with registry the columns are those of the subject"
        yield document.finding((*at, "schema"), message, key=True)
    if table.source_cluster_name not in registries:
        message = f"registry needs a schema_registry in the cluster {table.source_cluster_name}"
        yield document.finding((*at, "schema_mode"), message)


def of_layout(document: Document, at: Path, table: model.TableflowTable) -> Iterator[Finding]:
    """Finds what is wrong with partitions, retention and key, held against the columns."""
    columns = {one.name: one for one in table.fields}
    inline = table.schema_mode == "inline"
    if table.partition_by and table.partitioning_scheme != "unpartitioned":
        message = "replaces partitioning_scheme: leave one of them out"
        yield document.finding((*at, "partition_by"), message, key=True)
    for text in table.partition_by if inline else ():
        term = parse_term(text)
        column_kind = columns.get(term.column)
        kind = (
            column_kind.type if column_kind else "timestamptz" if term.column == RECORD_TIME else ""
        )
        names = (*columns, RECORD_TIME)
        wrong = (
            types.partition_problem(term.transform, kind)
            if kind
            else f"names no column of this table; {suggest(term.column, names)}"
        )
        if wrong:
            yield document.finding((*at, "partition_by"), f"{text}: {wrong}")
    if table.retention and not table.keeps_time:
        message = (
            "needs a table that is partitioned by the time of its records: partitioning_scheme: "
            f"hour, or partition_by: day({RECORD_TIME})"
        )
        yield document.finding((*at, "retention"), message, key=True)
    for name in table.upsert_key if inline else ():
        if wrong := _no_key(columns.get(name), tuple(columns)):
            yield document.finding((*at, "upsert_key"), f"{name} {wrong}")


def _no_key(column: types.DeclaredField | None, names: Sequence[str]) -> str:
    if column is None:
        return f"is no column of this table; allowed: {', '.join(names)}"
    if column.optional:
        return "must not be optional: each row has a key"
    if column.type in (*types.INSIDE, "float", "double"):
        return f"is of type {column.type}, by which rows cannot be matched"
    return ""


def _ids(
    document: Document, found: list[tuple[Path, types.DeclaredField, int]]
) -> Iterator[Finding]:
    first: dict[int, Path] = {}
    for place, one, _ in found:
        other = first.setdefault(one.id, place)
        if other != place:
            line = document.places[(*other, "id")].line
            yield document.finding((*place, "id"), f"is also the id of a field in line {line}")


def _inside(document: Document, place: Path, one: types.DeclaredField) -> Iterator[Finding]:
    inner_names = sorted(inner.name for inner in one.fields)
    if one.type not in types.INSIDE:
        if inner_names:
            message = f"are for struct, list and map, not for {one.type}"
            yield document.finding((*place, "fields"), message, key=True)
        return
    allowed = types.INSIDE[one.type]
    if allowed is None and not inner_names:
        yield document.finding((*place, "fields"), "are required: a struct has fields", key=True)
    elif allowed is not None and inner_names != sorted(allowed):
        names = " and ".join(allowed)
        yield document.finding((*place, "fields"), f"must be {names}, for a {one.type}", key=True)
    elif one.type == "map":
        yield from _key(document, place, one)


def _key(document: Document, place: Path, one: types.DeclaredField) -> Iterator[Finding]:
    index = next(at for at, inner in enumerate(one.fields) if inner.name == "key")
    key = one.fields[index]
    if key.type != "string" or key.optional:
        message = "must be string, and not optional: keys of JSON objects and of Avro maps are text"
        yield document.finding((*place, "fields", index, "type"), message)
