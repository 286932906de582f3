"""HTTPS with authorities of one's own: certificates that a manifest gives as text.

A module of its own, so that `requests` is imported only where something is sent: `sdk.oauth` and
the client of Trino import this module inside a function.
"""

from __future__ import annotations

import ssl
from typing import Any

from requests.adapters import HTTPAdapter
from typing_extensions import override

from dataflow_assets.errors import PermanentError


class OwnAuthorities(HTTPAdapter):
    """Checks a server's certificate with these authorities, and none else; they stay in memory.

    Raises PermanentError where they are no certificates.
    """

    def __init__(self, authorities: str) -> None:
        try:
            self._context = ssl.create_default_context(cadata=authorities)
        except (ssl.SSLError, ValueError):
            raise PermanentError(
                "ca: its PEM blocks must be CERTIFICATE, and whole: at least one is not"
            ) from None
        super().__init__()

    @override
    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, ssl_context=self._context, **kwargs)

    @override
    def cert_verify(self, conn: Any, url: Any, verify: Any, cert: Any) -> None:
        super().cert_verify(conn, url, verify, cert)
        conn.ca_certs = conn.ca_cert_dir = None  # else the usual ones are trusted as well
