"""Nessie: an Iceberg REST catalog with branches and tags, on the object store of SeaweedFS.

It keeps its commits on disk, so that acknowledged ones survive `kill`. It needs Java 21; `missing`
says what is there where none is found. Tests start it, and the demo with the lake: it takes 10 s
and 400 MB.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from typing_extensions import override

from dataflow_assets.spark import jars, java
from dataflow_assets.spark.process import LOOPBACK, Server, ServerError
from devservers.seaweedfs import SeaweedFS

JAVA = 21


@dataclass(eq=False, kw_only=True)
class Nessie(Server):
    """A server at `uri`, whose default warehouse `raw` is a folder of the store's bucket."""

    name = "nessie"
    port_names: ClassVar[tuple[str, ...]] = ("nessie", "management")
    start_timeout: ClassVar[float] = 180  # the JVM's start is all processor, and machines are busy

    store: SeaweedFS
    issuer: str = ""
    """The realm of an OpenID provider whose tokens it asks for; empty: it asks for none."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Adds to its properties, or overrides them."""
    heap: str = "512m"

    @property
    def uri(self) -> str:
        """`baseURL` of a manifest."""
        return f"http://{LOOPBACK}:{self.ports['nessie']}"

    def catalog_properties(self, reference: str = "main") -> dict[str, str]:
        """For `pyiceberg.catalog.load_catalog("nessie", **properties)`, on a branch or tag."""
        return {
            "type": "rest",
            "uri": f"{self.uri}/iceberg/{reference}",
            "s3.endpoint": self.store.s3_endpoint,
            "s3.access-key-id": self.store.access_key,
            "s3.secret-access-key": self.store.secret_key,
            "s3.region": self.store.region,
        }

    def trino_catalog(self, reference: str = "main") -> dict[str, str]:
        """Properties of a catalog of Trino with the tables of a branch or tag."""
        return {
            "connector.name": "iceberg",
            "iceberg.catalog.type": "rest",
            "iceberg.rest-catalog.uri": f"{self.uri}/iceberg/",
            "iceberg.rest-catalog.prefix": reference,
            **self.store.trino_files(),
        }

    @override
    def endpoints(self) -> dict[str, str]:
        return {"uri": self.uri}

    @override
    def prepare(self) -> None:
        lines = (f"{key}={value}\n" for key, value in self._properties().items())
        self._file.write_text("".join(lines))

    @override
    def command(self) -> list[str]:
        (jar,) = jars.fetch("nessie")
        options = [f"-Xmx{self.heap}", *java.OPTIONS, f"-Dquarkus.config.locations={self._file}"]
        return [java.executable(JAVA), *options, "-jar", str(jar)]

    @override
    def ready(self) -> bool:
        address = f"http://{LOOPBACK}:{self.ports['management']}/q/health/ready"
        with urllib.request.urlopen(address, timeout=2) as answer:
            return bool(answer.status == 200)

    @property
    def _file(self) -> Path:
        return self.folder / "application.properties"

    def _properties(self) -> dict[str, str]:
        store = "nessie.catalog.service.s3.default-options"
        found = {
            "quarkus.http.host": LOOPBACK,
            "quarkus.http.port": str(self.ports["nessie"]),
            "quarkus.management.host": LOOPBACK,
            "quarkus.management.port": str(self.ports["management"]),
            "nessie.version.store.type": "ROCKSDB",
            "nessie.version.store.persist.rocks.database-path": str(self.folder / "data"),
            "nessie.catalog.default-warehouse": "raw",
            "nessie.catalog.warehouses.raw.location": f"s3://{self.store.bucket}/nessie",
            f"{store}.endpoint": self.store.s3_endpoint,
            f"{store}.path-style-access": "true",
            f"{store}.region": self.store.region,
            f"{store}.auth-type": "STATIC",
            f"{store}.access-key": "urn:nessie-secret:quarkus:s3cred",
            "s3cred.name": self.store.access_key,
            "s3cred.secret": self.store.secret_key,
        }
        return found | self._authentication() | dict(self.config)

    def _authentication(self) -> dict[str, str]:
        if not self.issuer:
            return {"quarkus.oidc.tenant-enabled": "false"}
        return {
            "nessie.server.authentication.enabled": "true",
            "quarkus.oidc.auth-server-url": self.issuer,
            "quarkus.oidc.client-id": "nessie",
            "quarkus.oidc.token.audience": "nessie",
        }


def missing() -> str:
    """Why Nessie cannot run on this machine; empty where it can."""
    try:
        java.home(JAVA)
    except ServerError as error:
        return str(error)
    return ""
