"""Tables of databases by the options of their connectors, as a manifest's `config` has them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, get_args

from pydantic.alias_generators import to_snake

from dataflow_assets import registry
from dataflow_assets.contracts import Sink
from dataflow_assets.errors import DataflowError
from dataflow_assets.languages.common.client_security import field_or_reference
from dataflow_assets.languages.common.documents import Document, NodePlace, Path
from dataflow_assets.languages.common.notes import Notes
from dataflow_assets.languages.common.references import mentions
from dataflow_assets.languages.common.wording import validate
from dataflow_assets.languages.sql.reader.tables import FlinkDeclared
from dataflow_assets.secrets import SecretRef, VariableRef

_NAMES: Mapping[str, str] = {
    "url": "connectionString",
    "table-name": "table",
    "connection-string": "connectionString",
}
_OF_TABLE: Mapping[str, str] = {
    "upsertMode": "is what the PRIMARY KEY says: leave it out",
    "conflictKey": "is what the PRIMARY KEY says: leave it out",
    "rawMode": "stores whole bodies: a table of SQL has columns",
}


def of_database(table: FlinkDeclared, notes: Notes) -> Sink | None:
    """The table as a sink; None where `notes` has got the reason."""
    cls = registry.sinks()[table.connector]
    refs = _references(table, notes)
    config, places = _config(table, cls, refs, notes)
    for name, message in _OF_TABLE.items():
        if name in config:
            notes.wrong((table.document, _written_key(table, name)), message, key=True)
    if table.table.key:
        config |= {"upsertMode": True, "conflictKey": list(table.table.key)}
        if "softDeleteColumn" not in config:
            config.setdefault("deleteMode", "hard")
    found, findings = validate(cls, Document(table.document.file, config, places))
    notes.findings += findings
    if findings or found is None:
        return None
    filled = found.model_copy(
        update={f"{to_snake(name)}_secret_ref": r for name, r in refs.items()}
    )
    try:
        filled.address()
    except (DataflowError, ValueError, LookupError) as error:
        notes.wrong((table.document, "connector"), f"does not say where it points: {error}")
        return None
    if getattr(filled, "auto_create_table", False):
        message = "is not supported yet in SQL: create the table first"
        notes.wrong((table.document, _written_key(table, "autoCreateTable")), message)
        return None
    return filled


def _references(table: FlinkDeclared, notes: Notes) -> dict[str, SecretRef]:
    references: dict[str, SecretRef] = {}
    for key, option in table.options.items():
        if not mentions(option.value):
            continue
        where, name = (table.document, key), _NAMES.get(key, key)
        ref = field_or_reference("value", option.value, where, notes).get("value_secret_ref")
        if "." in name:
            notes.wrong(where, "a reference is supported in options without a dot only")
        elif isinstance(ref, VariableRef):  # by its own name, which makes the address
            references[name] = ref.model_copy(update={"name": ref.key})
        elif isinstance(ref, SecretRef):
            references[name] = ref
    return references


def _written_key(table: FlinkDeclared, key: str) -> str:
    return next((one for one in table.options if _NAMES.get(one, one) == key), key)


def _config(
    table: FlinkDeclared, cls: type[Any], refs: Mapping[str, SecretRef], notes: Notes
) -> tuple[dict[str, Any], dict[Path, NodePlace]]:
    """Nested by the dots of the options' names."""
    config: dict[str, Any] = {}
    places: dict[Path, NodePlace] = dict(table.document.places)
    for key, option in table.options.items():
        name = _NAMES.get(key, key)
        path = tuple(name.split("."))
        value: Any = _as_type(cls, path[0], option.value)
        if name in refs:
            path, value = (f"{name}SecretRef",), {"name": refs[name].name, "key": refs[name].key}
        inner: Any = config
        for size, part in enumerate(path[:-1], 1):
            inner = inner.setdefault(part, {})
            places.setdefault(path[:size], table.document.places[key,])
            if not isinstance(inner, dict):
                message = f"is inside of {'.'.join(path[:size])}, which has a value of its own"
                notes.wrong((table.document, key), message, key=True)
                break
        else:
            inner[path[-1]] = value
        places[path] = table.document.places[key,]
    del config["connector"]
    return config, places


def _as_type(cls: type[Any], name: str, text: str) -> Any:
    """Numbers and booleans where the option is one."""
    infos = {info.alias or field: info for field, info in cls.model_fields.items()}
    info = infos.get(name)
    kinds = {info.annotation, *get_args(info.annotation)} if info is not None else set()
    if bool in kinds and text in ("true", "false"):
        return text == "true"
    if int in kinds and re.fullmatch(r"-?\d{1,18}", text):
        return int(text)
    if tuple in {getattr(one, "__origin__", None) for one in kinds}:
        return [one.strip() for one in text.split(",")]
    return text
