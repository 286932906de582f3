"""JDBC addresses of PostgreSQL, in libpq's words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, urlencode

_URL = re.compile(
    r"jdbc:postgresql://(?P<hosts>[^/?\s]+)/(?P<database>[^?\s]+)(?:\?(?P<rest>\S*))?"
)
_FORM = "must be jdbc:postgresql://host:port/database"
_OF_TLS = ("sslmode", "sslrootcert", "sslcert", "sslkey")
_WITHOUT_EFFECT = frozenset(
    {
        "applicationname",
        "binarytransfer",
        "connecttimeout",
        "logintimeout",
        "preparethreshold",
        "rewritebatchedinserts",
        "sockettimeout",
        "stringtype",
        "targetservertype",
        "tcpkeepalive",
    }
)


@dataclass(frozen=True)
class JdbcUrl:
    """An address without its password."""

    text: str
    """As a `postgresql://` URL."""
    schema: str
    """Of tables that are named without one."""

    @classmethod
    def parse(cls, text: str, user: str) -> JdbcUrl:
        """Raises ValueError with what is allowed; no value of the address is in it."""
        match = _URL.fullmatch(text)
        if match is None:
            other = re.match(r"jdbc:(?!postgresql)(\w+)", text)
            raise ValueError(f"{other[1]} is not supported: {_FORM}" if other else _FORM)
        rest = {key.lower(): value for key, value in parse_qsl(match["rest"] or "")}
        user = user or rest.pop("user", "")
        if not user:
            raise ValueError("needs a user: write the connector's own key for it")
        if "password" in rest:
            raise ValueError("has a password in it: write it into connection.password")
        schema = rest.pop("currentschema", "public").split(",")[0].strip('"')
        tls = {key: rest.pop(key) for key in _OF_TLS if key in rest}
        if rest.pop("ssl", "false").lower() == "true":
            tls.setdefault("sslmode", "verify-full")
        if unknown := sorted(rest.keys() - _WITHOUT_EFFECT):
            raise ValueError(f"has parameters that are not supported: {', '.join(unknown)}")
        tail = f"?{urlencode(tls)}" if tls else ""
        login = quote(user, safe="")
        return cls(f"postgresql://{login}@{match['hosts']}/{match['database']}{tail}", schema)
