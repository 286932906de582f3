"""Keycloak: a realm `demo` whose tokens Trino and Nessie take.

Its tokens are signed with a key that is given, so that Trino can check them without asking. The
client `flows` has a service account, may use the password grant, and gets tokens for `trino` and
`nessie`; those of `strangers` are for nobody. `brief` is as `flows`, with tokens of eight seconds.
Only tests start it: it takes half a minute and 500 MB.
"""

from __future__ import annotations

import json
import shutil
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import requests
from typing_extensions import override

from dataflow_assets.spark import java
from dataflow_assets.spark.process import LOOPBACK, Server
from devservers.programs import run
from devservers.unpacked import unpacked

AUDIENCES = ("trino", "nessie")


@dataclass(eq=False, kw_only=True)
class Keycloak(Server):
    """A server at `uri`."""

    name = "keycloak"
    port_names: ClassVar[tuple[str, ...]] = ("http", "management")
    start_timeout: ClassVar[float] = 300

    realm: ClassVar[str] = "demo"
    client: ClassVar[str] = "flows"
    secret: ClassVar[str] = "flows-s3cret"  # noqa: S105 (loopback only)
    stranger: ClassVar[str] = "strangers"
    brief: ClassVar[str] = "brief"
    user: ClassVar[str] = "ada"
    password: ClassVar[str] = "ada-s3cret"  # noqa: S105 (loopback only)

    key: Path
    """The RSA key that signs tokens."""

    @property
    def uri(self) -> str:
        """`keycloak.serverURL` of a manifest."""
        return f"http://{LOOPBACK}:{self.ports['http']}"

    @property
    def token_endpoint(self) -> str:
        """Where tokens are fetched."""
        return f"{self.uri}/realms/{self.realm}/protocol/openid-connect/token"

    @override
    def endpoints(self) -> dict[str, str]:
        return {"uri": self.uri}

    @override
    def prepare(self) -> None:
        """Keycloak writes into its own folder: each server has a copy of it."""
        if not self._home.exists():
            scratch = self.folder / "home.new"
            shutil.rmtree(scratch, ignore_errors=True)
            shutil.copytree(unpacked("keycloak"), scratch)
            scratch.rename(self._home)
        self._certify()
        imported = self._home / "data" / "import"
        imported.mkdir(parents=True, exist_ok=True)
        (imported / f"{self.realm}-realm.json").write_text(json.dumps(self._realm()))

    @override
    def command(self) -> list[str]:
        ports = {"http-host": LOOPBACK, "http-port": str(self.ports["http"])}
        ports |= {"http-management-port": str(self.ports["management"])}
        options = [f"--{name}={value}" for name, value in ports.items()]
        start = ["start-dev", "--import-realm", "--health-enabled=true", "--cache=local"]
        return ["bash", str(self._home / "bin" / "kc.sh"), *start, *options]

    @override
    def environment(self) -> dict[str, str]:
        return {
            "JAVA_HOME": str(java.home(17)),
            "JAVA_OPTS_KC_HEAP": "-XX:MaxRAM=1g -XX:MaxRAMPercentage=50",
            # It answers a few questions: the optimizing compiler takes half of its start.
            "JAVA_OPTS_APPEND": "-XX:TieredStopAtLevel=1",
            "KC_BOOTSTRAP_ADMIN_USERNAME": "admin",
            "KC_BOOTSTRAP_ADMIN_PASSWORD": "admin",
            "KC_RUN_IN_CONTAINER": "true",  # kc.sh becomes the server and stays no parent of it
        }

    @override
    def ready(self) -> bool:
        address = f"{self.uri}/realms/{self.realm}/.well-known/openid-configuration"
        with urllib.request.urlopen(address, timeout=5) as answer:  # noqa: S310 (ours)
            return bool(answer.status == 200)

    def enable(self, client: str, *, on: bool) -> None:
        """Switches a client on or off, as an administrator does."""
        form = {"grant_type": "password", "client_id": "admin-cli"}
        form |= {"username": "admin", "password": "admin"}
        master = f"{self.uri}/realms/master/protocol/openid-connect/token"
        answer = requests.post(master, form, timeout=30)
        headers = {"Authorization": f"Bearer {answer.json()['access_token']}"}
        clients = f"{self.uri}/admin/realms/{self.realm}/clients"
        (found,) = requests.get(clients, {"clientId": client}, headers=headers, timeout=30).json()
        changed = found | {"enabled": on}
        requests.put(
            f"{clients}/{found['id']}", json=changed, headers=headers, timeout=30
        ).raise_for_status()

    @property
    def _home(self) -> Path:
        return self.folder / "home"

    @property
    def _certificate(self) -> Path:
        return self.folder / "tokens.crt"

    def _certify(self) -> None:
        if not self._certificate.exists():
            made = ["openssl", "req", "-x509", "-key", str(self.key), "-subj", "/CN=tokens"]
            run([*made, "-days", "30", "-out", str(self._certificate)], "openssl req")

    def _realm(self) -> dict[str, Any]:
        signing = {
            "name": "tokens",
            "providerId": "rsa",
            "config": {
                "privateKey": [self.key.read_text()],
                "certificate": [self._certificate.read_text()],
                "priority": ["1000"],
            },
        }
        return {
            "realm": self.realm,
            "enabled": True,
            "sslRequired": "none",
            "components": {"org.keycloak.keys.KeyProvider": [signing]},
            "clients": [
                self._client(self.client, AUDIENCES),
                self._client(self.stranger, ()),
                self._client(self.brief, AUDIENCES) | {"attributes": _lifespan(8)},
            ],
            "users": [
                {
                    "username": self.user,
                    "enabled": True,
                    "email": "ada@example.com",
                    "emailVerified": True,
                    "firstName": "Ada",
                    "lastName": "Example",
                    "credentials": [{"type": "password", "value": self.password}],
                }
            ],
        }

    def _client(self, name: str, audiences: tuple[str, ...]) -> dict[str, Any]:
        return {
            "clientId": name,
            "secret": self.secret,
            "serviceAccountsEnabled": True,
            "directAccessGrantsEnabled": True,
            "standardFlowEnabled": False,
            "protocolMappers": [
                {
                    "name": f"for-{audience}",
                    "protocol": "openid-connect",
                    "protocolMapper": "oidc-audience-mapper",
                    "config": {
                        "included.custom.audience": audience,
                        "access.token.claim": "true",
                    },
                }
                for audience in audiences
            ],
        }


def _lifespan(seconds: int) -> dict[str, str]:
    return {"access.token.lifespan": str(seconds)}
