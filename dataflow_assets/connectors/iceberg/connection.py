"""Connection to a table behind a REST catalog, and to its files: what every such catalog has.

The declared part, without network. Which catalog it is, and where, is in `rest` and `nessie`.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, SecretStr, field_validator
from typing_extensions import override

from dataflow_assets.connectors.iceberg.addresses import check_address, clean_address, host_slug
from dataflow_assets.connectors.iceberg.credentials import CREDENTIALS, BasicAuth
from dataflow_assets.contracts import Address, Connector
from dataflow_assets.errors import PermanentError
from dataflow_assets.secrets import Fills, SecretRef, one_word
from dataflow_assets.secrets.tls import IN_CLEAR, is_plain, warn_in_clear
from dataflow_assets.spec import Addition

Secret = SecretStr | None
Ref = SecretRef | None
_ENDPOINT = "https://keycloak/realms/r/protocol/openid-connect/token"


class CatalogConnection(Connector):
    """The keys that all sources and sinks share: table, credentials, object store."""

    place: ClassVar[str]
    """The keys that say where a table is, for who has to check them."""
    at: ClassVar[str]
    """The field that holds the catalog's address."""
    warehouse: str | None = None
    """Warehouse, as the catalog names it."""
    namespace: str = ""
    """Namespace of the table; dots separate levels."""
    namespace_secret_ref: Annotated[Ref, Fills("namespace", required=True)] = None
    """Secret with the namespace."""
    table: str = ""
    """Name of the table."""
    table_secret_ref: Annotated[Ref, Fills("table", required=True)] = None
    """Secret with the table's name."""
    authentication_type: Literal["AUTO", "BEARER", "OAUTH2", "BASIC", "NONE"] = "AUTO"
    """AUTO takes the bearer token, else OAuth2, else basic, else nothing. `OAUTH2` is an addition.
    """
    bearer_token: Secret = None
    """Bearer token."""
    token_secret_ref: Annotated[Ref, Fills("bearer_token")] = None
    """Secret with the bearer token."""
    basic_auth: BasicAuth | None = None
    """Basic authentication."""
    oauth2_client_id: str | None = Field(None, alias="oauth2ClientID")
    """OAuth2 client credentials: the client."""
    oauth2_client_id_secret_ref: Annotated[Ref, Fills("oauth2_client_id")] = Field(
        None, alias="oauth2ClientIDSecretRef"
    )
    """Secret with the client."""
    oauth2_client_secret: Secret = Field(None, alias="oauth2ClientSecret")
    """OAuth2 client credentials: the secret."""
    oauth2_client_secret_secret_ref: Annotated[Ref, Fills("oauth2_client_secret")] = Field(
        None, alias="oauth2ClientSecretSecretRef"
    )
    """Secret with the client's secret."""
    oauth2_server_uri: str | None = Field(None, alias="oauth2ServerURI")
    """Token endpoint; the catalog's own by default."""
    oauth2_server_uri_secret_ref: Annotated[Ref, Fills("oauth2_server_uri")] = Field(
        None, alias="oauth2ServerURISecretRef"
    )
    """Secret with the token endpoint."""
    oauth2_scope: str = Field("catalog", alias="oauth2Scope")
    """OAuth2 scope."""
    s3_endpoint: str | None = Field(None, alias="s3Endpoint")
    """S3 endpoint of the files; AWS_S3_ENDPOINT by default."""
    s3_region: str | None = Field(None, alias="s3Region")
    """S3 region; AWS_REGION by default."""
    access_key: Annotated[Secret, Addition()] = None
    """S3 access key; by default what the catalog hands out, else AWS_ACCESS_KEY_ID."""
    access_key_secret_ref: Annotated[Ref, Fills("access_key")] = None
    """Secret with the S3 access key."""
    secret_access_key: Annotated[Secret, Addition()] = None
    """S3 secret key; by default what the catalog hands out, else AWS_SECRET_ACCESS_KEY."""
    secret_access_key_secret_ref: Annotated[Ref, Fills("secret_access_key")] = None
    """Secret with the S3 secret key."""
    s3_path_style_access: Annotated[bool, Addition()] = Field(True, alias="s3PathStyleAccess")
    """True: `endpoint/bucket/key`; false: `bucket.endpoint/key`."""

    @field_validator("oauth2_server_uri")
    @classmethod
    def _endpoint(cls, value: str | None) -> str | None:
        if value:
            check_address(value, _ENDPOINT)
        return value

    @field_validator("authentication_type", mode="before")
    @classmethod
    def _any_case(cls, value: Any) -> Any:
        return value.upper() if isinstance(value, str) else value

    @override
    def broken_rules(self) -> Iterator[str]:
        yield from super().broken_rules()
        for name in ("namespace", "table"):
            yield from self._missing_option(name)
        yield from self._one_of_two("oauth2_client_id", "oauth2_client_secret")
        yield from self._one_of_two("access_key", "secret_access_key")
        if self._is_set("bearer_token") and self._is_set("oauth2_client_id"):
            yield "bearerToken and oauth2ClientID exclude each other"
        if self.authentication_type == "BEARER" and not self._is_set("bearer_token"):
            yield "authenticationType BEARER needs bearerToken or tokenSecretRef"
        if self.authentication_type == "OAUTH2" and not self._is_set("oauth2_client_id"):
            yield ("authenticationType OAUTH2 needs oauth2ClientID and oauth2ClientSecret")
        basic = self.basic_auth is not None and self.basic_auth.complete
        if self.authentication_type == "BASIC" and not basic:
            yield "authenticationType BASIC needs basicAuth with username and password"

    @override
    def remarks(self) -> Iterator[tuple[str, str]]:
        yield from super().remarks()
        basic = self.basic_auth
        if basic is not None and not basic.complete:
            yield "basic_auth", "not sent: username and password belong together"
        yield from self._without_effect()
        if self._authenticates and is_plain(getattr(self, self.at)):
            yield self.at, IN_CLEAR
        if self._is_set("oauth2_client_id") and is_plain(self.oauth2_server_uri or ""):
            yield "oauth2_server_uri", IN_CLEAR

    def _without_effect(self) -> Iterator[tuple[str, str]]:
        """Credentials that are not sent, and keys of a client that is not there."""
        sent = self._credentials_key
        reason = f"is not sent: {sent} is" if sent else "is not sent: authenticationType is NONE"
        basic = self.basic_auth
        whole = basic is None or basic.complete  # else another note says what is missing
        for key, names in CREDENTIALS.items():
            if key != sent and (key != "basicAuth" or whole):
                yield from ((name, reason) for name in names)
        if not self._is_set("oauth2_client_id"):
            for name in ("oauth2_server_uri", "oauth2_server_uri_secret_ref", "oauth2_scope"):
                yield name, "has no effect without oauth2ClientID"

    @property
    def _credentials_key(self) -> str:
        """The key of the credentials that are sent; empty where none are."""
        kind, basic = self.authentication_type, self.basic_auth
        if self._is_set("bearer_token") and kind in ("AUTO", "BEARER"):
            return "bearerToken"
        if self._is_set("oauth2_client_id") and kind in ("AUTO", "OAUTH2"):
            return "oauth2ClientID"
        return "basicAuth" if basic and basic.complete and kind in ("AUTO", "BASIC") else ""

    def __getstate__(self) -> dict[Any, Any]:
        """Tasks read by the store that the driver's environment names: theirs is another one."""
        state = super().__getstate__()
        resolved = {"s3_endpoint": self.store_endpoint, "s3_region": self._region}
        return state | {"__dict__": state["__dict__"] | resolved}

    @property
    def token_endpoint(self) -> str:
        """Returns where tokens are fetched, if there is a client for them; secrets are in place."""
        if not self._is_set("oauth2_server_uri"):
            return f"{self.catalog}/v1/oauth/tokens"
        return clean_address(self.oauth2_server_uri or "", "oauth2ServerURI", _ENDPOINT)

    @property
    def _authenticates(self) -> bool:
        basic = self.basic_auth is not None and self.basic_auth.complete
        has_credentials = basic or self._is_set("bearer_token") or self._is_set("oauth2_client_id")
        return has_credentials and self.authentication_type != "NONE"

    @property
    def store_endpoint(self) -> str | None:
        """The endpoint as declared, else as the environment says; None for that of AWS."""
        return self.s3_endpoint or os.environ.get("AWS_S3_ENDPOINT")

    @property
    def _region(self) -> str | None:
        return self.s3_region or os.environ.get("AWS_REGION")

    def _is_set(self, name: str) -> bool:
        if name == "bearer_token":
            return bool(self.bearer_token or self.token_secret_ref)
        return bool(getattr(self, name) or getattr(self, f"{name}_secret_ref"))

    def _missing_option(self, name: str) -> Iterator[str]:
        if not self._is_set(name):
            alias = type(self).model_fields[name].alias
            yield f"{alias} is required: set {alias} or {alias}SecretRef"

    def _one_of_two(self, one: str, other: str) -> Iterator[str]:
        if self._is_set(one) != self._is_set(other):
            names = [type(self).model_fields[name].alias for name in (one, other)]
            yield f"{names[0]} and {names[1]} belong together: set both or none"

    @property
    @abstractmethod
    def catalog(self) -> str:
        """The address of the catalog's REST interface, without `/v1`; secrets are in place."""

    @override
    def address(self) -> Address:
        """The system, a slug of the catalog's host and warehouse, namespace, table."""
        namespace, table = self.namespace_secret_ref, self.table_secret_ref
        return self._address(
            namespace.label if namespace else self.namespace, table.label if table else self.table
        )

    @override
    def resolved_address(self) -> Address:
        return self._address(self.namespace, self.table)

    @abstractmethod
    def _address(self, namespace: str, table: str) -> Address:
        """That of a table of these names."""

    @property
    def identifier(self) -> tuple[str, ...]:
        return (*self.namespace.split("."), self.table)

    def catalog_properties(self) -> dict[str, Any]:
        """PyIceberg's properties; holds secrets, so it goes nowhere but to PyIceberg."""
        tokens = self._is_set("oauth2_client_id") and is_plain(self.token_endpoint)
        if self._authenticates and (is_plain(self.catalog) or tokens):
            warn_in_clear(f"catalog {host_slug(self.catalog, self.warehouse)}")
        warehouse = {"warehouse": self.warehouse} if self.warehouse else {}
        place = {"uri": self.catalog, **warehouse}
        return place | self._authentication() | self._file_properties()

    def _authentication(self) -> dict[str, Any]:
        sent = self._credentials_key
        if sent == "bearerToken":
            token = one_word(_text(self.bearer_token), "bearerToken")
            return {"token": token} | self._token_server()
        if sent == "oauth2ClientID":
            return {"credential": self._client()} | self._token_server()
        if (basic := self.basic_auth) is not None and sent:
            user = _declared_credential(basic.username, "basicAuth.username")
            both = {
                "username": user,
                "password": _declared_credential(basic.password, "basicAuth.password"),
            }
            return {"auth": {"type": "basic", "basic": both}}
        return {"auth": {"type": "noop"}}

    def _client(self) -> str:
        client = self._credential("oauth2_client_id")
        if ":" in client:
            raise PermanentError(
                "oauth2ClientID: an id with a colon in it is not supported: register the client "
                "under another id"
            )
        return f"{client}:{self._credential('oauth2_client_secret')}"

    def _credential(self, name: str) -> str:
        return _declared_credential(
            getattr(self, name), type(self).model_fields[name].alias or name
        )

    def _token_server(self) -> dict[str, str]:
        return {"oauth2-server-uri": self.token_endpoint, "scope": self.oauth2_scope}

    def _file_properties(self) -> dict[str, str]:
        keys = {"s3.access-key-id": "access_key", "s3.secret-access-key": "secret_access_key"}
        credentials = {
            key: self._credential(name) for key, name in keys.items() if self._is_set(name)
        }
        values = {
            "s3.endpoint": self.store_endpoint,
            "s3.region": self._region,
            **credentials,
            "s3.force-virtual-addressing": str(not self.s3_path_style_access),
            "s3.connect-timeout": "10",
            "s3.request-timeout": "60",
        }
        return {name: value for name, value in values.items() if value}


def _text(value: SecretStr | str | None) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else value or ""


def _declared_credential(value: SecretStr | str | None, option: str) -> str:
    """A credential that is declared. Raises PermanentError where its Secret is empty.

    Without one the flow would ask as somebody else, or as nobody.
    """
    if not (text := _text(value)):
        raise PermanentError(f"{option}: its Secret is empty")
    return text
