"""Tables of Flink's connector jdbc, as far as they are PostgreSQL's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from pydantic import SecretStr, ValidationError

from dataflow_assets.connectors.postgresql.sink.sink import LoginSink
from dataflow_assets.errors import DataflowError
from dataflow_assets.languages.common.client_security import field_or_reference
from dataflow_assets.languages.common.notes import Notes
from dataflow_assets.languages.sql.reader.tables import FlinkDeclared

_URL = re.compile(
    r"jdbc:postgresql://(?P<hosts>[^/?@\s]+)/(?P<database>[^?\s]*)(?:\?(?P<rest>.*))?"
)
_PARAMETERS: Mapping[str, str] = {
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "ApplicationName": "application_name",
    "connectTimeout": "connect_timeout",
}
"""Parameters of the driver's address, as PostgreSQL's own clients call them."""


def jdbc(table: FlinkDeclared, notes: Notes) -> LoginSink | None:
    """The table as a sink; None where `notes` has got the reason."""
    before = len(notes.findings)
    match = _URL.fullmatch(table.text("url"))
    if match is None:
        message = "must be jdbc:postgresql://host:port/database; other databases are not supported"
        notes.wrong((table.document, "url"), message, key="url" not in table.options)
    if not table.text("table-name"):
        notes.wrong((table.document, "table-name"), "is required: the table", key=True)
    url_parameters = dict(parse_qsl(match["rest"] or "")) if match else {}
    login = _login(table, url_parameters, notes)
    parameters = _parameters(table, url_parameters, notes)
    if match is None or len(notes.findings) > before:
        return None
    user = f"{quote(login.pop('user'), safe='')}@" if login.get("user") else ""
    query = f"?{urlencode(parameters)}" if parameters else ""
    address = f"postgresql://{user}{match['hosts']}/{match['database']}{query}"
    return _make(table, {"connection_string": SecretStr(address), **login}, notes)


def _login(table: FlinkDeclared, given: dict[str, str], notes: Notes) -> dict[str, Any]:
    """The user, and the password or where it is."""
    fields: dict[str, Any] = {}
    if user := table.text("username") or given.pop("user", ""):
        fields["user"] = user
    password = table.text("password")
    if password:
        fields |= field_or_reference("password", password, (table.document, "password"), notes)
    elif "password" in given:
        fields["password"] = given["password"]
    given.pop("password", None)
    return fields


def _parameters(table: FlinkDeclared, given: Mapping[str, str], notes: Notes) -> dict[str, str]:
    parameters: dict[str, str] = {}
    for name, value in given.items():
        if name in _PARAMETERS:
            parameters[_PARAMETERS[name]] = value
        elif name == "ssl" and value != "false":
            parameters.setdefault("sslmode", "verify-full")
        elif name != "user":
            notes.note((table.document, "url"), f"its parameter {name} has no effect")
    return parameters


def _make(table: FlinkDeclared, given: Mapping[str, Any], notes: Notes) -> LoginSink | None:
    key = table.table.key
    upserts: dict[str, Any] = {}
    if key:
        upserts = {"upsert_mode": True, "conflict_key": key, "delete_mode": "hard"}
    try:
        sink = LoginSink(**given, **upserts, table=table.text("table-name"))
        sink.address()
    except ValidationError as error:
        places = {"table": (table.document, "table-name")}
        notes.refuse(error, places, (table.document, "url"))
    except (DataflowError, ValueError):
        notes.wrong((table.document, "url"), "must be jdbc:postgresql://host:port/database")
    else:
        return sink
    return None
