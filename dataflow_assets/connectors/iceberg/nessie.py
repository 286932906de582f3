"""A Nessie server: where it is, and on which branch or tag a table is, without network.

Tables are read and written through Nessie's own Iceberg REST catalog, one reference at a time. A
table on another branch is another table: the branch is part of its name, `orders@dev`, as Nessie
itself writes it; `main` is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, ClassVar
from urllib.parse import quote

from pydantic import Field, field_validator
from typing_extensions import override

from dataflow_assets.connectors.iceberg.addresses import (
    clean_address,
    host_slug,
    slug,
    with_host,
)
from dataflow_assets.connectors.iceberg.connection import CatalogConnection, Ref, Secret
from dataflow_assets.contracts import Address
from dataflow_assets.errors import PermanentError
from dataflow_assets.secrets import Fills, SecretRef
from dataflow_assets.spec import Addition

MAIN = "main"
_EXAMPLE = "https://nessie:19120"
_REFERENCE = re.compile(r"(?!.*\.\.)[A-Za-z](?:[A-Za-z0-9._/-]*[A-Za-z0-9_-])?")  # Nessie's rule

_OF_THE_API = re.compile(r"/(api(/v\d)?|iceberg(/v\d)?|v1)$")
_OF_REFERENCES = re.compile(r"[@#`]")
"""What a table's name must not have: `orders@dev` is `orders` on `dev`, also where `branch` says
another one."""


def _check_name(table: str) -> None:
    """Raises ValueError where Nessie would take a part of the name for a reference."""
    if match := _OF_REFERENCES.search(table):
        raise ValueError(
            f"must not have `{match[0]}`: Nessie would take what follows for a branch, a tag "
            "or a time; name the branch or tag with the option branch"
        )


class NessieConnection(CatalogConnection):
    """The keys of a Nessie server."""

    place: ClassVar[str] = "baseURL, branch, warehouse and namespace"
    at: ClassVar[str] = "base_url"
    base_url: str = Field("", alias="baseURL")
    """Address of the Nessie server, without `/api` or `/iceberg`."""
    base_url_secret_ref: Annotated[Ref, Fills("base_url", required=True)] = Field(
        None, alias="baseURLSecretRef"
    )
    """Secret with the server's address."""
    branch: str = MAIN
    """The branch. A source may name a tag too: it never changes, so it is read once."""
    oauth2_client_id: Annotated[str | None, Addition()] = Field(None, alias="oauth2ClientID")
    """OAuth2 client credentials: the client. Needs `oauth2ServerURI`."""
    oauth2_client_id_secret_ref: Annotated[Ref, Fills("oauth2_client_id"), Addition()] = Field(
        None, alias="oauth2ClientIDSecretRef"
    )
    """Secret with the client."""
    oauth2_client_secret: Annotated[Secret, Addition()] = Field(None, alias="oauth2ClientSecret")
    """OAuth2 client credentials: the secret."""
    oauth2_client_secret_secret_ref: Annotated[Ref, Fills("oauth2_client_secret"), Addition()] = (
        Field(None, alias="oauth2ClientSecretSecretRef")
    )
    """Secret with the client's secret."""
    oauth2_server_uri: Annotated[str | None, Addition()] = Field(None, alias="oauth2ServerURI")
    """Token endpoint, such as `https://keycloak/realms/r/protocol/openid-connect/token`: Nessie
    has none of its own."""
    oauth2_server_uri_secret_ref: Annotated[Ref, Fills("oauth2_server_uri"), Addition()] = Field(
        None, alias="oauth2ServerURISecretRef"
    )
    """Secret with the token endpoint."""
    oauth2_scope: Annotated[str, Addition()] = Field("profile", alias="oauth2Scope")
    """OAuth2 scope."""

    @field_validator("base_url")
    @classmethod
    def _with_host(cls, value: str) -> str:
        return with_host(value, _EXAMPLE)

    @field_validator("branch")
    @classmethod
    def _reference(cls, value: str) -> str:
        if not _REFERENCE.fullmatch(value):
            raise ValueError(
                "must be the name of a branch or tag: letters, digits and `. _ - /`, a letter first"
            )
        return value

    @field_validator("table")
    @classmethod
    def _without_reference(cls, value: str) -> str:
        _check_name(value)
        return value

    @override
    def broken_rules(self) -> Iterator[str]:
        yield from super().broken_rules()
        yield from self._missing_option("base_url")
        if self._is_set("oauth2_client_id") and not self._is_set("oauth2_server_uri"):
            yield ("oauth2ClientID needs oauth2ServerURI: Nessie has no token endpoint of its own")

    @property
    @override
    def identifier(self) -> tuple[str, ...]:
        try:
            _check_name(self.table)
        except ValueError as error:  # of a Secret: what a manifest says itself was checked before
            raise PermanentError(f"the secret of tableSecretRef: the name {error}") from None
        return super().identifier

    @property
    def server(self) -> str:
        """The server's address, secrets in place. PermanentError where a Secret has none."""
        return clean_address(self.base_url, "baseURL", _EXAMPLE).rstrip("/")

    @property
    @override
    def catalog(self) -> str:
        """Nessie takes branch and warehouse as a part of the path."""
        return f"{self.server}/iceberg/{quote(self.prefix_of(self.branch), safe='')}"

    def prefix_of(self, reference: str) -> str:
        """The prefix under which Nessie's Iceberg REST catalog has a branch, a tag or a commit."""
        return f"{reference}|{self.warehouse}" if self.warehouse else reference

    @override
    def _address(self, namespace: str, table: str) -> Address:
        """A table has its branch behind it."""
        on = "" if self.branch == MAIN else f"@{self.branch}"
        return Address("nessie", self._connection(), namespace, f"{table}{on}")

    def _connection(self) -> str:
        ref = self.base_url_secret_ref
        return slug(ref.name) if ref else host_slug(self.base_url, self.warehouse)

    @override
    def remarks(self) -> Iterator[tuple[str, str]]:
        yield from super().remarks()
        if match := _OF_THE_API.search(self.base_url):
            yield "base_url", f"must be written without {match[0]}, which is added: nothing answers"

    @override
    def spellings(self) -> tuple[str | SecretRef, ...]:
        """The server's address with the warehouse behind it."""
        if self.base_url_secret_ref:
            return (self.base_url_secret_ref,)
        return (f"{self.base_url}/{self.warehouse}" if self.warehouse else self.base_url,)
