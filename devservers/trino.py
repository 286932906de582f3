"""Trino: one coordinator that is its own worker, over an Iceberg catalog, PostgreSQL and memory.

Over `uri` nobody is asked who they are. Over `secure_uri` a token is asked for, which `key` has
signed: Keycloak of `devservers.keycloak` does. The user `narrow` may only read tables of the name
`target` and add rows to them; the user `fileless` may not read `target$files`. It needs Java 24;
`missing` says what is there where none is found. Tests start it, and the demo with the lake: it
takes 15 s and 700 MB.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from typing_extensions import override

from dataflow_assets.spark import java
from dataflow_assets.spark.process import LOOPBACK, Server, ServerError
from devservers.certificates import Authority, key_pair
from devservers.postgresql import PostgreSQL
from devservers.seaweedfs import TOKENS, SeaweedFS
from devservers.unpacked import only, unpacked

JAVA = 24
PLUGINS = frozenset({"iceberg", "postgresql", "memory", "password-authenticators", "geospatial"})
AUDIENCE = "trino"
_OPTIONS = (
    "-XX:G1HeapRegionSize=16M",
    "-XX:+EnableDynamicAgentLoading",
    "-Djdk.attach.allowAttachSelf=true",
    "--add-modules=jdk.incubator.vector",
    "--enable-native-access=ALL-UNNAMED",
    "--sun-misc-unsafe-memory-access=allow",
)
NARROW = "narrow"
FILELESS = "fileless"
_HIDDEN = "snapshots|properties|refs|metadata_log_entries"
_RULES = {
    "tables": [
        {"user": NARROW, "table": "target", "privileges": ["SELECT", "INSERT"]},
        {"user": NARROW, "table": rf"target\$({_HIDDEN}|files)", "privileges": ["SELECT"]},
        {"user": FILELESS, "table": rf"target\$({_HIDDEN})", "privileges": ["SELECT"]},
        {"user": f"{NARROW}|{FILELESS}", "table": r"target\$.*", "privileges": []},
        {"privileges": ["SELECT", "INSERT", "DELETE", "UPDATE", "OWNERSHIP", "GRANT_SELECT"]},
    ],
    "procedures": [{"privileges": ["EXECUTE", "GRANT_EXECUTE"]}],
}
"""Of whom what may be done; what is not named is allowed to everybody."""


@dataclass(eq=False, kw_only=True)
class Trino(Server):
    """A coordinator with the catalogs `lake` (Iceberg), `pg` (PostgreSQL) and `memory`."""

    name = "trino"
    port_names: ClassVar[tuple[str, ...]] = ("http", "https")
    needs: ClassVar[tuple[str, ...]] = ("trino",)
    start_timeout: ClassVar[float] = 240  # the JVM's start is all processor, and machines are busy

    store: SeaweedFS
    database: PostgreSQL
    config: Mapping[str, str] = field(default_factory=dict)
    """Adds to its properties, or overrides them."""
    catalogs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By name the properties of more catalogs, or of others in place of the three."""
    heap: str = "1200m"

    @property
    def uri(self) -> str:
        """Plain, for everybody."""
        return f"http://{LOOPBACK}:{self.ports['http']}"

    @property
    def secure_uri(self) -> str:
        """Encrypted, for whoever has a token."""
        return f"https://{LOOPBACK}:{self.ports['https']}"

    @property
    def authority(self) -> Authority:
        """Who has signed the certificate of `secure_uri`."""
        folder = self.folder / "tls"
        folder.mkdir(exist_ok=True)
        return Authority(folder, "trino-ca")

    @property
    def key(self) -> Path:
        """The RSA key that tokens are signed with."""
        return self.folder / "tokens.key"

    @override
    def endpoints(self) -> dict[str, str]:
        return {"uri": self.uri, "secure_uri": self.secure_uri}

    @override
    def prepare(self) -> None:
        files: dict[str, Mapping[str, str]]
        files = {"config": self._properties(), "log": {"io.trino": "WARN", "io.airlift": "WARN"}}
        catalogs = self.folder / "catalog"
        catalogs.mkdir(exist_ok=True)
        key_pair(self.key, self._public)
        for name, properties in files.items():
            _write(self.folder / f"{name}.properties", properties)
        for name, properties in self._catalogs().items():
            _write(catalogs / f"{name}.properties", properties)
        rules = self.folder / "rules.json"
        rules.write_text(json.dumps(_RULES))
        control = {"access-control.name": "file", "security.config-file": str(rules)}
        _write(self._access_control, control)

    @override
    def command(self) -> list[str]:
        home = unpacked("trino", lambda folder: only(folder / "plugin", PLUGINS))
        here = {
            "config": self.folder / "config.properties",
            "log.levels-file": self.folder / "log.properties",
            "node.id": "dataflow",
            "node.environment": "dev",
            "node.data-dir": self.folder / "data",
            "plugin.dir": home / "plugin",
            "catalog.config-dir": self.folder / "catalog",
        }
        options = [f"-Xmx{self.heap}", *java.OPTIONS, *_OPTIONS]
        options += [f"-D{name}={value}" for name, value in here.items()]
        classes = ["-cp", f"{home}/lib/*", "io.trino.server.TrinoServer"]
        return [java.executable(JAVA), *options, *classes]

    @override
    def ready(self) -> bool:
        """Whether it reads a catalog: it answers before it is known as a worker."""
        from trino.dbapi import connect

        here = connect(  # type: ignore[no-untyped-call]
            host=LOOPBACK, port=self.ports["http"], user="dev", request_timeout=5, max_attempts=1
        )
        with closing(here) as connection:
            found = connection.cursor().execute("SELECT 1 FROM memory.information_schema.schemata")
            return bool(found.fetchall())

    @property
    def _public(self) -> Path:
        return self.folder / "tokens.pem"

    @property
    def _access_control(self) -> Path:
        return self.folder / "access-control.properties"

    def _properties(self) -> dict[str, str]:
        found = {
            "coordinator": "true",
            "node-scheduler.include-coordinator": "true",
            "http-server.http.port": str(self.ports["http"]),
            "discovery.uri": self.uri,
            # Its only worker is itself, which a machine that halts for half a minute does not end.
            "discovery.max-age": "1d",
            "query.max-memory": "400MB",
            "query.max-memory-per-node": "400MB",
            "memory.heap-headroom-per-node": "300MB",
            "web-ui.enabled": "false",
            "catalog.management": "static",
            "access-control.config-files": str(self._access_control),
            "http-server.https.enabled": "true",
            "http-server.https.port": str(self.ports["https"]),
            "http-server.https.keystore.path": str(self.authority.issue("trino").bundle),
            "internal-communication.shared-secret": "of-one-process",
            "http-server.authentication.type": "JWT",
            "http-server.authentication.allow-insecure-over-http": "true",
            "http-server.authentication.jwt.key-file": str(self._public),
            "http-server.authentication.jwt.required-audience": AUDIENCE,
            "http-server.authentication.jwt.principal-field": "preferred_username",
        }
        return found | dict(self.config)

    def _catalogs(self) -> dict[str, Mapping[str, str]]:
        store = self.store
        lake = {
            "connector.name": "iceberg",
            "iceberg.catalog.type": "rest",
            "iceberg.rest-catalog.uri": store.uri,
            "iceberg.rest-catalog.warehouse": store.warehouse,
            "iceberg.rest-catalog.security": "OAUTH2",
            "iceberg.rest-catalog.oauth2.credential": store.credential,
            "iceberg.rest-catalog.oauth2.server-uri": store.uri + TOKENS,
            **store.trino_files(),
        }
        place = f"jdbc:postgresql://{LOOPBACK}:{self.database.port}/postgres"
        pg = {"connector.name": "postgresql", "connection-url": place}
        pg |= {"connection-user": "postgres", "connection-password": ""}
        memory = {"connector.name": "memory"}
        return {"lake": lake, "pg": pg, "memory": memory, **self.catalogs}


def _write(path: Path, properties: Mapping[str, str]) -> None:
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))


def missing() -> str:
    """Why Trino cannot run on this machine; empty where it can."""
    try:
        java.home(JAVA)
    except ServerError as error:
        return str(error)
    return ""
