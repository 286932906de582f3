"""HTTPS with authorities of one's own: certificates that a manifest gives as text."""

from __future__ import annotations

import ssl
from typing import Any

from requests.adapters import HTTPAdapter
from typing_extensions import override


class OwnAuthorities(HTTPAdapter):
    """Checks a server's certificate with these authorities; they stay in memory."""

    def __init__(self, authorities: str) -> None:
        self._context = ssl.create_default_context(cadata=authorities)
        super().__init__()

    @override
    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, ssl_context=self._context, **kwargs)
