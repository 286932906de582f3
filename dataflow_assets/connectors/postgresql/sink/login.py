"""The PostgreSQL sink of languages that give a password beside the address of the database."""

from __future__ import annotations

from typing import Annotated

from psycopg.conninfo import make_conninfo
from pydantic import SecretStr
from typing_extensions import override

from dataflow_assets.connectors.postgresql import dsn
from dataflow_assets.connectors.postgresql.sink.sink import PostgresqlSink
from dataflow_assets.secrets import Fills, SecretRef


class LoginSink(PostgresqlSink):
    """A PostgreSQL sink with a password of its own, which may be a reference.

    Made by the manifest languages `justone` and `sql`; DataFlow manifests do not name it.
    """

    password: SecretStr | None = None
    """Password of the connection string's user."""
    password_secret_ref: Annotated[SecretRef | None, Fills("password")] = None
    """Secret, or variable, with the password."""

    @override
    def dsn(self) -> str:
        text = super().dsn()
        if self.password is None:
            return text
        password = self.password.get_secret_value()
        return make_conninfo("", **{**dsn.parse(text), "password": password})
