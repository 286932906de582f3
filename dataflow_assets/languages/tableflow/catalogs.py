"""The catalog in which files declare their tables: `catalog` of connections.yaml.

    catalog: {type: nessie, config: {baseURL: https://nessie:19120, warehouse: lake}}

It is the `sink` of a manifest without the table; without `namespace` it is that of the language.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dataflow_assets.connectors.iceberg import IcebergSink, NessieSink
from dataflow_assets.connectors.iceberg.connection import CatalogConnection
from dataflow_assets.connectors.iceberg.nessie import NessieConnection
from dataflow_assets.connectors.iceberg.rest import RestConnection
from dataflow_assets.connectors.iceberg.sink.sink import TableSink
from dataflow_assets.errors import Finding
from dataflow_assets.languages.common.documents import Document, Path
from dataflow_assets.languages.common.keys import suggest
from dataflow_assets.languages.common.kinds import kind
from dataflow_assets.languages.common.wording import validate

KEY = "catalog"
_AT: Path = (KEY, "config")
_TYPES: dict[str, tuple[type[TableSink], type[CatalogConnection]]] = {
    "iceberg": (IcebergSink, RestConnection),
    "nessie": (NessieSink, NessieConnection),
}
_OF_TABLES = ("table", "tableSecretRef", "namespaceSecretRef")


@dataclass(frozen=True)
class TableflowCatalog:
    """Its kind, and the options that a sink needs to reach it."""

    type: str
    options: dict[str, Any]
    """By field; without a table, and without a namespace where none is given."""


def unusable(catalogs: Sequence[TableflowCatalog | None]) -> str:
    """Why the tables of no file can be read; empty where they can.

    `catalogs`: the different catalogs of a location, None for one with a mistake.
    """
    if None in catalogs:
        return "the catalog of connections.yaml has a mistake: correct it, or take it out"
    if len(catalogs) > 1:
        return "connections.yaml files of this location name several catalogs: keep one"
    return ""


def read(document: Document) -> tuple[TableflowCatalog | None, list[Finding]]:
    """The catalog of connections.yaml, and what is wrong with it."""
    value = document.get(KEY)
    if value is None:
        return None, []
    if not isinstance(value, dict):
        return None, [document.finding((KEY,), f"must be {{type, config}}, got {kind(value)}")]
    findings = [
        document.finding(
            (KEY, key), f"unknown key; {suggest(str(key), ('type', 'config'))}", key=True
        )
        for key in value
        if key not in ("type", "config")
    ]
    if value.get("type") not in _TYPES:
        message = f"is required: {suggest(str(value.get('type') or ''), tuple(_TYPES))}"
        return None, [*findings, document.finding((KEY, "type"), message)]
    sink, connection = _TYPES[value["type"]]
    config = value.get("config") or {}
    findings += _of_tables(document, config, connection) if isinstance(config, dict) else ()
    filled = {"namespace": "-", **config, "table": "-"} if isinstance(config, dict) else config
    whole = {**document.value, KEY: {**value, "config": filled}}
    found, more = validate(sink, replace(document, value=whole), _AT)
    findings += more
    if found is None or findings:
        return None, findings
    names = found.model_fields_set - {"table", *(() if "namespace" in config else ("namespace",))}
    return TableflowCatalog(value["type"], {name: getattr(found, name) for name in names}), []


def _of_tables(
    document: Document, given: dict[str, Any], connection: type[CatalogConnection]
) -> Iterable[Finding]:
    """Options that say what a table is like, which its own file does."""
    fields = connection.model_fields.items()
    keys = {info.alias or name for name, info in fields} - {*_OF_TABLES}
    for key in given:
        if key not in keys and key in _OF_TABLES + tuple(_aliases(IcebergSink, NessieSink)):
            message = "must be left out: the files say what their tables are like"
            yield document.finding((*_AT, key), message, key=True)


def _aliases(*sinks: type[TableSink]) -> Iterable[str]:
    return (one.alias or name for sink in sinks for name, one in sink.model_fields.items())
