"""An Iceberg REST catalog: where it is, without network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator
from typing_extensions import override

from dataflow_assets.connectors.iceberg.addresses import (
    clean_address,
    host_slug,
    slug,
    with_host,
)
from dataflow_assets.connectors.iceberg.connection import CatalogConnection, Ref
from dataflow_assets.contracts import Address
from dataflow_assets.secrets import Fills, SecretRef

_EXAMPLE = "https://catalog:8181"


class RestConnection(CatalogConnection):
    """The keys of a catalog that speaks the Iceberg REST protocol."""

    place: ClassVar[str] = "catalogURI, warehouse, namespace and prefix"
    at: ClassVar[str] = "catalog_uri"
    catalog_uri: str = Field("", alias="catalogURI")
    """Address of the REST catalog, without `/v1`."""
    catalog_uri_secret_ref: Annotated[Ref, Fills("catalog_uri", required=True)] = Field(
        None, alias="catalogURISecretRef"
    )
    """Secret with the catalog's address."""
    prefix: str | None = None
    """Path prefix of the catalog's API, where it does not name one itself."""

    @field_validator("catalog_uri")
    @classmethod
    def _with_host(cls, value: str) -> str:
        return with_host(value, _EXAMPLE)

    @override
    def broken_rules(self) -> Iterator[str]:
        yield from super().broken_rules()
        yield from self._missing_option("catalog_uri")

    @property
    @override
    def catalog(self) -> str:
        return clean_address(self.catalog_uri, "catalogURI", _EXAMPLE).rstrip("/")

    @override
    def catalog_properties(self) -> dict[str, Any]:
        return super().catalog_properties() | ({"prefix": self.prefix} if self.prefix else {})

    @override
    def _address(self, namespace: str, table: str) -> Address:
        return Address("iceberg", self._connection(), namespace, table)

    def _connection(self) -> str:
        ref = self.catalog_uri_secret_ref
        return slug(ref.name) if ref else host_slug(self.catalog_uri, self.warehouse)

    @override
    def spellings(self) -> tuple[str | SecretRef, ...]:
        """The catalog's address with the warehouse behind it: catalogs may hold several."""
        if self.catalog_uri_secret_ref:
            return (self.catalog_uri_secret_ref,)
        return (f"{self.catalog_uri}/{self.warehouse}" if self.warehouse else self.catalog_uri,)
