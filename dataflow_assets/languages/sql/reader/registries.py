"""The schema registry of a table whose keys or values are of the format avro-confluent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from dataflow_assets.formats.schema_registry import SchemaRegistry
from dataflow_assets.languages.common.client_security import field_or_reference
from dataflow_assets.languages.common.notes import Notes
from dataflow_assets.languages.sql.reader.change_formats import DEBEZIUM_CONFLUENT
from dataflow_assets.languages.sql.reader.options import CONFLUENT, KAFKA
from dataflow_assets.languages.sql.reader.tables import FlinkDeclared

_URLS = ("url", "schema-registry.url")


def registry(table: FlinkDeclared, notes: Notes) -> SchemaRegistry | None:
    """Returns None where the table needs none, or `notes` has got the reason."""
    starts = list(_starts(table))
    if not starts:
        return None
    urls = [_url(table, start, notes) for start in starts]
    if len(set(urls)) > 1:
        message = "must be the registry of the other one: a table has one schema registry"
        notes.wrong((table.document, f"{starts[1]}.url"), message)
    if None in urls or len(set(urls)) > 1:
        return None
    given: dict[str, Any] = {"url": urls[0]}
    for start in starts:
        given |= _login(table, start, notes)
    try:
        return SchemaRegistry(**given)
    except ValidationError as error:
        notes.refuse(error, {}, (table.document, f"{starts[0]}.url"))
        return None


def _starts(table: FlinkDeclared) -> Iterator[str]:
    for name, start in (("value.format", "value."), ("key.format", "key."), ("format", "")):
        value_format = table.text(name)
        is_confluent = value_format in (CONFLUENT, DEBEZIUM_CONFLUENT)
        if is_confluent and (name != "format" or table.connector == KAFKA):
            yield f"{start}{value_format}"


def _url(table: FlinkDeclared, start: str, notes: Notes) -> str | None:
    urls = [table.text(f"{start}.{name}") for name in _URLS if table.text(f"{start}.{name}")]
    if not urls:
        where = (table.document, f"{start}.url")
        notes.wrong(where, "is required: the schema registry, like https://registry:8081", key=True)
        return None
    return urls[0]


def _login(table: FlinkDeclared, start: str, notes: Notes) -> dict[str, Any]:
    user_info, token = f"{start}.basic-auth.user-info", f"{start}.bearer-auth.token"
    found: dict[str, Any] = {}
    if text := table.text(user_info):
        user, colon, password = text.partition(":")
        if not colon:
            notes.wrong((table.document, user_info), "must be user:password")
            return {}
        login = field_or_reference("password", password, (table.document, user_info), notes)
        found["basic_auth"] = {"username": user, **login}
    if text := table.text(token):
        found |= field_or_reference("bearer_token", text, (table.document, token), notes)
    return found
