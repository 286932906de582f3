"""A token of Keycloak's for Trino, as manifests declare it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated
from urllib.parse import SplitResult

from pydantic import Field, SecretStr, field_validator
from typing_extensions import override

from dataflow_assets.sdk.http_addresses import of_secret, parts_of
from dataflow_assets.sdk.oauth import Grant
from dataflow_assets.secrets import Fills, SecretRef
from dataflow_assets.spec import Spec

Secret = SecretStr | None
Ref = SecretRef | None
_KEYCLOAK_IN_CLEAR = (
    "passwords and tokens are sent to Keycloak without encryption, and whoever reads them may use "
    "them: take an https:// address"
)
_FOR_TOKENS = ("server_url", "realm", "client_id", "client_secret", "username", "password")
_UNUSED = "has no effect beside token, which is sent as it is"
_KEYCLOAK = "https://keycloak.example.com"


def _with_host(value: str | None) -> str | None:
    if value:
        parts(value, _KEYCLOAK)
    return value.rstrip("/") if value else value


def parts(value: str, example: str) -> SplitResult:
    """Raises ValueError, which never shows the address: it may have a password."""
    url = parts_of(value, example)
    if "@" in url.netloc:
        raise ValueError(
            f"must have no user and password, which nobody would be sent: write {example}, and set "
            "`keycloak` or `user`"
        )
    return url


def is_plain(address: str | None) -> bool:
    """Returns whether nothing is encrypted; a scheme may have capital letters."""
    return (address or "").strip().lower().startswith("http://")


class Keycloak(Spec):
    """A token for Trino: given, or fetched from a realm of Keycloak and renewed while a run lasts.

    Of several ways the first complete one is used: `token`; `username` and `password`; the
    credentials of the client (`clientID` and `clientSecret`).
    """

    token: Secret = None
    """A token as it is; it is never renewed."""
    token_secret_ref: Annotated[Ref, Fills("token")] = None
    """Secret with the token."""
    server_url: str | None = Field(None, alias="serverURL")
    """Keycloak's address, such as `https://keycloak.example.com`."""
    server_url_secret_ref: Annotated[Ref, Fills("server_url")] = Field(
        None, alias="serverURLSecretRef"
    )
    """Secret with Keycloak's address."""
    realm: str | None = None
    """The realm that knows the client."""
    realm_secret_ref: Annotated[Ref, Fills("realm")] = None
    """Secret with the realm."""
    client_id: str | None = Field(None, alias="clientID")
    """The client that asks for tokens."""
    client_id_secret_ref: Annotated[Ref, Fills("client_id")] = Field(
        None, alias="clientIDSecretRef"
    )
    """Secret with the client's id."""
    client_secret: Secret = None
    """The client's secret; a public client has none."""
    client_secret_secret_ref: Annotated[Ref, Fills("client_secret")] = None
    """Secret with the client's secret."""
    username: str | None = None
    """With `password`: the user whose token it is."""
    username_secret_ref: Annotated[Ref, Fills("username")] = None
    """Secret with the user's name."""
    password: Secret = None
    """The user's password."""
    password_secret_ref: Annotated[Ref, Fills("password")] = None
    """Secret with the user's password."""

    _address = field_validator("server_url")(_with_host)

    @override
    def broken_rules(self) -> Iterator[str]:
        yield from super().broken_rules()
        if self._is_set("token"):
            return
        for name in ("server_url", "realm", "client_id"):
            if not self._is_set(name):
                key = type(self).model_fields[name].alias
                yield f"{key} is required where no token is given"
        if self._is_set("username") != self._is_set("password"):
            yield "username and password belong together: set both or none"
        elif not self._is_set("username") and not self._is_set("client_secret"):
            yield "set token, username and password, or clientSecret"

    def _is_set(self, name: str) -> bool:
        return bool(getattr(self, name) or getattr(self, f"{name}_secret_ref"))

    @override
    def remarks(self) -> Iterator[tuple[str, str]]:
        yield from super().remarks()
        if self.in_clear:
            yield "server_url", self.in_clear
        if self._is_set("token"):
            for name in _FOR_TOKENS:
                yield name, _UNUSED
                yield f"{name}_secret_ref", _UNUSED

    @property
    def in_clear(self) -> str:
        """A warning where tokens are fetched over plain http; empty elsewhere."""
        fetched = self.token is None and self.token_secret_ref is None
        return _KEYCLOAK_IN_CLEAR if fetched and is_plain(self.server_url) else ""

    def grant(self, ca: str | None) -> Grant | None:
        """Returns how tokens are fetched; None where one is given. Secrets must be resolved.

        Raises PermanentError for a value that a Secret has and that is not an address.
        """
        if self.token is not None:
            return None
        secret, password = self.client_secret, self.password
        return Grant(
            f"{self._server()}/realms/{self.realm}/protocol/openid-connect/token",
            self.client_id or "",
            secret.get_secret_value() if secret else None,
            self.username,
            password.get_secret_value() if password else None,
            ca=ca,
        )

    def _server(self) -> str:
        """Keycloak's address, without blanks around it and the slash at its end."""
        address = (self.server_url or "").strip()
        with of_secret("keycloak.serverURL"):
            parts(address, _KEYCLOAK)
        return address.rstrip("/")
