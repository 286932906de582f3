"""A schema registry as a manifest declares it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import SecretStr, field_validator
from typing_extensions import override

from dataflow_assets.errors import PermanentError
from dataflow_assets.formats.registry_client import RegistryClient
from dataflow_assets.secrets import Fills, SecretRef, one_word
from dataflow_assets.secrets.tls import IN_CLEAR, Tls, is_plain, warn_in_clear, warn_unchecked
from dataflow_assets.spec import Addition, Spec

Ref = SecretRef | None


class RegistryAuth(Spec):
    """User and password of the schema registry; sent only if both are there."""

    username: str | None = None
    """User name."""
    username_secret_ref: Annotated[Ref, Fills("username")] = None
    """Secret with the user name."""
    password: SecretStr | None = None
    """Password."""
    password_secret_ref: Annotated[Ref, Fills("password")] = None
    """Secret with the password."""

    def pair(self) -> tuple[str, str] | None:
        """User and password, with all secrets in place; None where one of them is not declared.

        Raises PermanentError where a Secret is empty.
        """
        has_user = self.username or self.username_secret_ref
        if not has_user or not (self.password or self.password_secret_ref):
            return None
        user, password = self.username or "", _show(self.password) or ""
        for name, value in (("username", user), ("password", password)):
            if not value:
                raise PermanentError(f"schemaRegistry.basicAuth.{name}: its Secret is empty")
        return user, password

    @override
    def remarks(self) -> Iterator[tuple[str, str]]:
        user = self.username or self.username_secret_ref
        if user and not (self.password or self.password_secret_ref):
            yield "username", "not sent: there is no password"


class SchemaRegistry(Spec):
    """A registry that speaks Confluent's API. Its certificate is checked, also without `tls`."""

    url: str = ""
    """Address of the registry."""
    url_secret_ref: Annotated[Ref, Fills("url", required=True)] = None
    """Secret with the registry's address."""
    basic_auth: RegistryAuth | None = None
    """Basic authentication."""
    bearer_token: Annotated[SecretStr | None, Addition()] = None
    """A token, sent instead of user and password."""
    bearer_token_secret_ref: Annotated[Ref, Fills("bearer_token"), Addition()] = None
    """Secret with the token."""
    tls: Tls | None = None
    """Certificates."""

    @field_validator("url")
    @classmethod
    def _address(cls, value: str) -> str:
        if value and (wrong := address_problem(value)):
            raise ValueError(wrong)
        return value

    @override
    def broken_rules(self) -> Iterator[str]:
        yield from super().broken_rules()
        if not (self.url or self.url_secret_ref):
            yield "url is required: set url or urlSecretRef"
        if self.basic_auth and (self.bearer_token or self.bearer_token_secret_ref):
            yield "bearerToken and basicAuth exclude each other: keep one"

    @override
    def remarks(self) -> Iterator[tuple[str, str]]:
        credentials = self.basic_auth or self.bearer_token or self.bearer_token_secret_ref
        if is_plain(self.url) and credentials:
            yield "url", IN_CLEAR
        if is_plain(self.url) and self.tls:
            yield "tls", "has no effect: url is not https"

    def client(self) -> RegistryClient:
        """The registry, with all secrets in place.

        Called by connectors on the driver, once for each attempt of a run; nothing is asked yet.

        Raises:
            PermanentError where a secret or a file of `tls` is not what the option needs.
        """
        if wrong := address_problem(self.url):
            raise PermanentError(f"the secret of schemaRegistry.urlSecretRef: the url {wrong}")
        user, password = (self.basic_auth and self.basic_auth.pair()) or (None, None)
        registry = RegistryClient(
            self.url.strip(),
            user,
            password,
            self._token(),
            self.tls.material("schemaRegistry.tls") if self.tls else None,
        )
        if registry.material is not None and not registry.material.verify:
            warn_unchecked(str(registry))
        if is_plain(registry.url) and (registry.token or registry.password):
            warn_in_clear(str(registry))
        return registry

    def _token(self) -> str | None:
        if not (self.bearer_token or self.bearer_token_secret_ref):
            return None
        return one_word(_show(self.bearer_token) or "", "schemaRegistry.bearerToken")


def address_problem(url: str) -> str:
    """Returns what is wrong with the address of a registry; empty where it is one."""
    try:
        parts = urlsplit(url.strip())
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if host is None or parts.scheme not in ("http", "https"):
        return "must be the address of a registry, like https://registry:8081"
    if "@" in parts.netloc:
        return "must not hold a user: use basicAuth"
    return ""


def _show(value: SecretStr | None) -> str | None:
    return value.get_secret_value() if value and value.get_secret_value() else None
