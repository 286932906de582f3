"""Credentials of a catalog, as manifests declare them."""

from __future__ import annotations

from typing import Annotated

from pydantic import SecretStr

from dataflow_assets.secrets import Fills, SecretRef
from dataflow_assets.spec import Spec

Secret = SecretStr | None
Ref = SecretRef | None
CREDENTIALS = {
    "bearerToken": ("bearer_token", "token_secret_ref"),
    "oauth2ClientID": (
        "oauth2_client_id",
        "oauth2_client_id_secret_ref",
        "oauth2_client_secret",
        "oauth2_client_secret_secret_ref",
    ),
    "basicAuth": ("basic_auth",),
}
"""The fields of each kind of credentials, by the key that names the kind."""


class BasicAuth(Spec):
    """User and password of the catalog."""

    username: str | None = None
    """User name."""
    username_secret_ref: Annotated[Ref, Fills("username")] = None
    """Secret with the user name."""
    password: Secret = None
    """Password."""
    password_secret_ref: Annotated[Ref, Fills("password")] = None
    """Secret with the password."""

    @property
    def complete(self) -> bool:
        user = self.username or self.username_secret_ref
        return bool(user and (self.password or self.password_secret_ref))
