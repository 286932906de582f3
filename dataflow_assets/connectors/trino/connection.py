"""How a Trino coordinator is reached, as manifests say it: its address, and a token for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, ClassVar
from urllib.parse import SplitResult, urlsplit

from pydantic import Field, SecretStr, field_validator
from typing_extensions import override

from dataflow_assets.connectors.trino.keycloak import Keycloak, is_plain, parts
from dataflow_assets.contracts import Address
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.database import NamedTable, slugify
from dataflow_assets.sdk.http_addresses import of_secret
from dataflow_assets.secrets import Fills, SecretRef
from dataflow_assets.secrets.tls import NO_FORM, names_one
from dataflow_assets.spec import Addition

Secret = SecretStr | None
Ref = SecretRef | None
_IN_CLEAR = (
    "the token is sent without encryption, and whoever reads it may use it: take an https:// "
    "address (Trino itself checks tokens over https only)"
)
_PORTS = {"http": 80, "https": 443}


def _coordinator(value: str | None) -> str | None:
    if value:
        _bare(value)
    return value.rstrip("/") if value else value


def _bare(value: str) -> SplitResult:
    """An address that is scheme, host and port alone. Raises ValueError for any other."""
    url = parts(value, "https://trino:8443")
    if url.path.strip("/") or url.query or url.fragment:
        raise ValueError("must be scheme, host and port alone, like https://trino:8443")
    return url


class TrinoConnection(NamedTable):
    """A table of a catalog that a coordinator of Trino reaches."""

    type: ClassVar = "trino"

    server_url: str | None = Field(None, alias="serverURL")
    """The coordinator's address, such as `https://trino:8443`."""
    server_url_secret_ref: Annotated[Ref, Fills("server_url", required=True)] = Field(
        None, alias="serverURLSecretRef"
    )
    """Secret with the coordinator's address."""
    catalog: str | None = None
    """The catalog that the table is in."""
    catalog_secret_ref: Annotated[Ref, Fills("catalog", required=True)] = None
    """Secret with the catalog's name."""
    namespace: str | None = Field(None, alias="schema")
    """The schema that the table is in."""
    namespace_secret_ref: Annotated[Ref, Fills("namespace", required=True)] = Field(
        None, alias="schemaSecretRef"
    )
    """Secret with the schema's name."""
    keycloak: Keycloak | None = None
    """How the flow gets a token for Trino; without this block no token is sent."""
    user: Annotated[str | None, Addition()] = None
    """The user who runs the statements: by default the user of the token or, without a token,
    `dataflow-operator`."""
    ca: Annotated[Secret, Addition()] = None
    """CA certificates (PEM text, or the path of a file) by which the certificates of Trino and
    Keycloak are checked; by default the public CAs."""
    ca_secret_ref: Annotated[Ref, Fills("ca")] = None
    """Secret with these certificates."""
    query_timeout_seconds: int = 600
    """How long one statement may run, in seconds; 0 or less means 300."""

    _address = field_validator("server_url")(_coordinator)

    @override
    def broken_rules(self) -> Iterator[str]:
        yield from super().broken_rules()
        for name in ("server_url", "catalog", "namespace"):
            if not (getattr(self, name) or getattr(self, f"{name}_secret_ref")):
                key = type(self).model_fields[name].alias
                yield f"{key} or {key}SecretRef is required"
        for name, value in self.places_of_secrets():
            if not names_one(value):
                yield f"{name} {NO_FORM}"

    @override
    def remarks(self) -> Iterator[tuple[str, str]]:
        yield from super().remarks()
        if self._sent_in_clear:
            yield "server_url", _IN_CLEAR

    @override
    def places_of_secrets(self) -> Iterator[tuple[str, str]]:
        if self.ca is not None:
            yield "ca", self.ca.get_secret_value()

    @property
    def in_clear(self) -> Iterator[str]:
        """Warnings where a token goes over plain http. Secrets must be resolved."""
        if self._sent_in_clear:
            yield _IN_CLEAR
        if self.keycloak is not None and self.keycloak.in_clear:
            yield self.keycloak.in_clear

    @property
    def _sent_in_clear(self) -> bool:
        return self.keycloak is not None and is_plain(self.server_url)

    @property
    def seconds(self) -> int:
        return self.query_timeout_seconds if self.query_timeout_seconds > 0 else 300

    @property
    def host(self) -> str:
        """Of the coordinator. Secrets must be resolved."""
        return self._parts().hostname or ""

    @property
    def port(self) -> int:
        """Of the coordinator. Secrets must be resolved."""
        parts = self._parts()
        return parts.port or _PORTS[parts.scheme]

    @property
    def scheme(self) -> str:
        """Either http or https. Secrets must be resolved."""
        return self._parts().scheme

    def _parts(self) -> SplitResult:
        """Raises PermanentError for a value that a Secret has and that is not an address."""
        with of_secret("serverURL"):
            return _bare((self.server_url or "").strip())

    @override
    def address(self) -> Address:
        return Address("trino", self._connection(), *self.address_name())

    @override
    def resolved_address(self) -> Address:
        """Checkpoints have always been kept under the name of the schema's Secret alone."""
        ref, address = self.namespace_secret_ref, self.address()
        return replace(address, namespace=ref.name) if ref and address.namespace else address

    def _connection(self) -> str:
        ref = self.server_url_secret_ref
        where = ref.name if ref else urlsplit(self.server_url or "").netloc
        return slugify(f"{where} {_show(self.catalog, self.catalog_secret_ref)}")

    @override
    def spellings(self) -> tuple[str | SecretRef, ...]:
        if self.server_url_secret_ref:
            return (self.server_url_secret_ref,)
        return (f"{self.server_url}/{_show(self.catalog, self.catalog_secret_ref)}",)

    @override
    def usual_schema(self) -> str:
        if self.namespace is None:
            raise PermanentError("schemaSecretRef was not resolved")
        return self.namespace.lower()

    @override
    def known_schema(self) -> str | None:
        if self.namespace_secret_ref:
            return self.namespace_secret_ref.label
        return (self.namespace or "").lower()

    @override
    def _split(self) -> tuple[str, str]:
        """In small letters, as Trino has all names."""
        schema, name = super()._split()
        return schema.lower(), name.lower()

    @property
    def connection_group(self) -> Any:
        """The coordinator, the catalog, and who asks."""
        grant = self.keycloak.grant(None) if self.keycloak else None
        token = self.keycloak.token if self.keycloak else None
        return (self.server_url, self.catalog, self.user, grant, token)


def _show(value: str | None, ref: SecretRef | None) -> str:
    return ref.name if ref else value or ""
