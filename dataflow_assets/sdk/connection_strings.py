"""Connection strings that are URLs: their parts, and what to do about addresses of another kind."""

from __future__ import annotations

import re
from functools import cache
from urllib.parse import unquote


def foreign(text: str) -> str:
    """Returns what to do about an address of another kind.

    Called when a manifest is validated, for a connection string that cannot be read.

    Args:
        text: the connection string.

    Returns:
        A half sentence; empty where nothing is known.
    """
    if text.lower().startswith("jdbc:"):
        return "a JDBC address: remove `jdbc:`"
    if "${" in text or text.startswith("$"):
        return (
            "environment variables are not expanded: use connectionStringSecretRef, or in a file "
            "of SQL ${env:VARIABLE}"
        )
    return ""


@cache
def _url(schemes: str, hosts: str) -> tuple[re.Pattern[str], ...]:
    strict = (
        rf"^(?P<scheme>{schemes})://(?P<user>[^:@/?]*)(?::(?P<password>[^@/?]*))?@"
        rf"(?P<hosts>{hosts})(?:/(?P<database>[^?@]*))?"
        r"(?:\?(?P<query>[\w.-]+=[^&]*(?:&[\w.-]+=[^&]*)*))?$"
    )
    lenient = (
        rf"^(?P<scheme>{schemes})://(?:(?P<user>[^:@/]*)(?::(?P<password>.*))?@)?"
        rf"(?P<hosts>{hosts})(?:/(?P<database>[^?]*))?(?:\?(?P<query>.*))?$"
    )
    return re.compile(strict, re.DOTALL), re.compile(lenient, re.DOTALL)


def url(text: str, schemes: str, hosts: str = r"[^/?@]+") -> re.Match[str] | None:
    """The parts of a connection string that is a URL, so that an @ leads to no other host.

    Called by connectors of databases whose connection strings are URLs, when one is parsed.

    Args:
        text: the connection string.
        schemes: a pattern of what may stand in front of `://`.
        hosts: a pattern of the hosts with their ports.

    Returns:
        A match with the groups `scheme`, `user`, `password`, `hosts`, `database` and `query`, each
        as it is written, None where it is absent; None for a text that is no such URL.
    """
    return next(filter(None, (one.match(text) for one in _url(schemes, hosts))), None)


def unescape(password: str) -> str:
    """The password in the URL of a connection string, without its percent escapes.

    A lone % cannot be an escape: such a password was never encoded, and is taken as it is.
    """
    return password if re.search(r"%(?![0-9a-fA-F]{2})", password) else unquote(password)
