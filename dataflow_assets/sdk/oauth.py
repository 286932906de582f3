"""Bearer tokens for HTTP: given as they are, or fetched from an OAuth2 server and renewed in time.

Knows no connector. `sdk.bearer` puts them on requests. Driver and tasks each fetch tokens of their
own, one for all connections of a process that ask with the same credentials.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.sdk.handshake import Options, refusal

log = logging.getLogger(__name__)

RENEWED_AT = 0.8
"""Of a token's life: when a new one is fetched."""
UNKNOWN_LIFE = 300
"""Seconds that a token is used whose server does not say how long it lives."""
TIMEOUT = 30
"""Seconds that the token server may take to answer."""
EARLY_TIMEOUT = 5
"""The same while the last token is still valid, which its thread could go on with."""
RETRIED_AFTER = 5
"""Seconds after which a token that is still valid, but could not be renewed, is asked for again."""
_OPTIONS = Options(
    "its CA: `ca` of Trino, else REQUESTS_CA_BUNDLE in the environment",
    "",
    "",
    "the token server's address",
)
_FOREIGN_ANSWER = "the answer is not a token; check the address"


@dataclass(frozen=True)
class Grant:
    """Who asks for tokens, where, and by which grant; equal grants share one token in a process.

    With a user the grant is `password`, without one `client_credentials`.
    """

    url: str
    """The token endpoint."""
    client: str
    secret: str | None = field(default=None, repr=False)
    """None for a public client."""
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    scope: str | None = None
    ca: str | None = field(default=None, repr=False)
    """The certificates that the server's is checked with, as PEM; None for the usual ones."""

    @property
    def who(self) -> str:
        """Returns who is refused, for people."""
        return f"user {self.user}" if self.user else f"client {self.client}"

    @property
    def form(self) -> Mapping[str, str]:
        """Returns what is sent to the endpoint beside the client's own credentials."""
        if self.user is None:
            return {"grant_type": "client_credentials"}
        return {
            "grant_type": "password",
            "username": self.user,
            "password": self.password or "",
        }


@dataclass(frozen=True)
class _Token:
    text: str = ""
    until: float = 0.0
    """When the next one is fetched."""
    expires: float = 0.0


class Tokens:
    """The token of one grant, renewed before it expires. Threads may share it."""

    def __init__(self, grant: Grant) -> None:
        self._grant = grant
        self._renewal = threading.Lock()
        self._lock = threading.Lock()
        self._last = _Token()

    def current(self) -> str:
        """A token that is valid for a while yet.

        Called for each HTTP request, on the driver and in tasks; asks the server only where the
        token has used up most of its life. One thread asks then, and the others go on with the
        token for as long as it is valid. If the server cannot be reached, so does that thread.

        Raises:
            PermanentError: the server refuses the credentials.
            TransientError: the server cannot be reached, and the token has expired.
        """
        last, now = self._last, time.monotonic()
        if now < last.until or not self._renewal.acquire(blocking=now >= last.expires):
            return last.text
        try:
            if time.monotonic() >= self._last.until:  # nobody has renewed it meanwhile
                self._renew()
            return self._last.text
        finally:
            self._renewal.release()

    def forget(self) -> None:
        """Makes the next `current` fetch another token. Called when a server refuses this one."""
        with self._lock:
            self._last = _Token(self._last.text)  # threads that have just renewed it return it

    def _renew(self) -> None:
        asked = time.monotonic()
        early = asked < self._last.expires
        try:
            answer = _fetch(self._grant, EARLY_TIMEOUT if early else TIMEOUT)
        except TransientError as error:
            self._go_on(error)
            return
        life = float(answer.get("expires_in") or UNKNOWN_LIFE)
        text = str(answer["access_token"])
        self._last = _Token(text, asked + life * RENEWED_AT, asked + life)

    def _go_on(self, error: TransientError) -> None:
        """With the token that is there. Raises the error where it has expired."""
        now = time.monotonic()
        with self._lock:
            last = self._last
            if now >= last.expires:
                raise error
            self._last = replace(last, until=min(now + RETRIED_AFTER, last.expires))
        log.warning("%s; the last token is valid for %.0f s more", error, last.expires - now)


def tokens(grant: Grant) -> Tokens:
    """The tokens of this grant that the whole process shares.

    Called by connectors for each connection, on the driver and in tasks.
    """
    with _lock:
        return _shared.setdefault(grant, Tokens(grant))


def _fetch(grant: Grant, seconds: float) -> Mapping[str, Any]:
    from authlib.integrations.requests_client import OAuth2Session

    from dataflow_assets.sdk.authorities import OwnAuthorities

    with (
        _translate_errors(grant),
        OAuth2Session(grant.client, grant.secret, scope=grant.scope) as session,
    ):
        if grant.ca is not None:
            session.mount("https://", OwnAuthorities(grant.ca))
        answer: Mapping[str, Any] = session.fetch_token(grant.url, timeout=seconds, **grant.form)
    if "access_token" not in answer:
        raise PermanentError(f"{grant.url} answers without a token: is it a token endpoint?")
    return answer


@contextmanager
def _translate_errors(grant: Grant) -> Iterator[None]:
    from authlib.common.errors import AuthlibBaseError
    from requests import RequestException

    where = f"no token for {grant.who} from {grant.url}"
    try:
        yield
    except AuthlibBaseError as error:
        said = f"{error.error}: {error.description}" if error.description else str(error.error)
        raise PermanentError(f"{where}: {said}; check {_what_to_check(grant)}") from None
    except RequestException as error:
        if why := refusal(error, grant.ca or "", urlsplit(grant.url).hostname or "", _OPTIONS):
            raise PermanentError(f"{where}: {why}") from None
        if isinstance(error, ValueError):  # no address, or the page of some other server
            raise PermanentError(f"{where}: {_FOREIGN_ANSWER}") from None
        answered = getattr(error.response, "status_code", None)
        why = f"HTTP status {answered}" if answered else type(error).__name__
        raise TransientError(f"{where}: {why}") from None
    except ValueError:
        raise PermanentError(f"{where}: {_FOREIGN_ANSWER}") from None


def _what_to_check(grant: Grant) -> str:
    if grant.user is not None:
        return "username and password, and that the client may use the password grant"
    return "the client's id and secret, and that the client may use client credentials"


_lock = threading.Lock()
_shared: dict[Grant, Tokens] = {}
