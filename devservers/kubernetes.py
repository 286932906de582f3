"""A Kubernetes API server with its store in one process: no cluster behind it, nothing runs pods.

It asks for tokens and knows rights (RBAC), as a real one does; `account` makes what a pod has to
read Secrets with. The program is built from Go modules (`go_programs.py`), a quarter of an hour
once. Only tests of `make test-all` start it: it takes 5 s and 300 MB.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import requests
from typing_extensions import override

from dataflow_assets.spark.process import LOOPBACK, Server
from devservers.certificates import Authority, key_pair
from devservers.go_programs import KUBE_APISERVER

ISSUER = "https://kubernetes.default.svc"
_ADMIN = "of-the-tests-administrator"
_RBAC = "rbac.authorization.k8s.io"


@dataclass(eq=False, kw_only=True)
class Kubernetes(Server):
    """An API server at `uri`."""

    name = "kubernetes"
    port_names: ClassVar[tuple[str, ...]] = ("api", "etcd", "etcd_peer")
    start_timeout: ClassVar[float] = 180

    @property
    def uri(self) -> str:
        """Encrypted, as `authority` says."""
        return f"https://{LOOPBACK}:{self.ports['api']}"

    @cached_property
    def authority(self) -> Authority:
        """Who has signed the server's certificate."""
        return Authority(self.folder / "tls", "cluster")

    @override
    def endpoints(self) -> dict[str, str]:
        return {"uri": self.uri}

    @override
    def prepare(self) -> None:
        self._tokens.write_text(f'{_ADMIN},admin,admin,"system:masters"\n')
        key_pair(self._key, self._public)

    @override
    def command(self) -> list[str]:
        shown = self.authority.issue("kube-apiserver")
        options = {
            "etcd-servers": f"http://{LOOPBACK}:{self.ports['etcd']}",
            "bind-address": LOOPBACK,
            "advertise-address": LOOPBACK,
            "secure-port": self.ports["api"],
            "tls-cert-file": shown.cert,
            "tls-private-key-file": shown.key,
            "client-ca-file": self.authority.ca,
            "token-auth-file": self._tokens,
            "authorization-mode": "RBAC",
            "service-account-issuer": ISSUER,
            "service-account-signing-key-file": self._key,
            "service-account-key-file": self._public,
            "service-cluster-ip-range": "10.96.0.0/16",
            "disable-admission-plugins": "ServiceAccount",
            "v": 1,
        }
        return [
            str(KUBE_APISERVER.binary),
            *(f"--{name}={value}" for name, value in options.items()),
        ]

    @override
    def environment(self) -> dict[str, str]:
        return {
            "GOMEMLIMIT": "700MiB",
            "ETCD_DIR": str(self.folder / "etcd"),
            "ETCD_PORT": str(self.ports["etcd"]),
            "ETCD_PEER_PORT": str(self.ports["etcd_peer"]),
        }

    @override
    def ready(self) -> bool:
        return self.answer("GET", "/readyz").status_code == requests.codes.ok

    def put_secret(self, namespace: str, name: str, **values: str) -> None:
        """Makes or replaces a Secret, and its namespace where there is none."""
        self.namespace(namespace)
        document = {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": name}}
        self.put(f"/api/v1/namespaces/{namespace}/secrets", document | {"stringData": values})

    def delete_secret(self, namespace: str, name: str) -> None:
        """Raises where there is none."""
        path = f"/api/v1/namespaces/{namespace}/secrets/{name}"
        self.answer("DELETE", path).raise_for_status()

    def account(self, folder: Path, namespace: str, readable: tuple[str, ...]) -> None:
        """A service account `dataflow`, which may read the Secrets of some namespaces.

        Args:
            folder: gets `token` and `ca.crt`, as a pod has them.
            namespace: where the account is.
            readable: the namespaces; what was allowed before and is not among them stays allowed.
        """
        self.namespace(namespace)
        account = {"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": "dataflow"}}
        self.put(f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
        for name in readable:
            self._allow(name, namespace)
        shutil.copy(self.authority.ca, folder / "ca.crt")
        (folder / "token").write_text(self.token(namespace))

    def token(self, namespace: str, **spec: Any) -> str:
        """A new token of the account `dataflow`; `spec` is that of a TokenRequest."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/dataflow/token"
        asked = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": spec}
        answer = self.answer("POST", path, asked)
        answer.raise_for_status()
        return str(answer.json()["status"]["token"])

    def _allow(self, readable: str, namespace: str) -> None:
        self.namespace(readable)
        rights = f"/apis/{_RBAC}/v1/namespaces/{readable}"
        rules = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]
        head = {"apiVersion": f"{_RBAC}/v1", "metadata": {"name": "dataflow"}}
        self.put(f"{rights}/roles", {**head, "kind": "Role", "rules": rules})
        who = [{"kind": "ServiceAccount", "name": "dataflow", "namespace": namespace}]
        role = {"apiGroup": _RBAC, "kind": "Role", "name": "dataflow"}
        binding = {**head, "kind": "RoleBinding", "subjects": who, "roleRef": role}
        self.put(f"{rights}/rolebindings", binding)

    def namespace(self, name: str) -> None:
        """Makes a namespace, where there is none of the name."""
        document = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}}
        answer = self.answer("POST", "/api/v1/namespaces", document)
        if answer.status_code != requests.codes.conflict:
            answer.raise_for_status()

    def put(self, path: str, document: Mapping[str, Any]) -> None:
        """Makes or replaces an object, as an administrator; `path` is that of all of its kind."""
        answer = self.answer("POST", path, document)
        if answer.status_code == requests.codes.conflict:
            answer = self.answer("PUT", f"{path}/{document['metadata']['name']}", document)
        answer.raise_for_status()

    def answer(
        self, method: str, path: str, document: Mapping[str, Any] | None = None
    ) -> requests.Response:
        """What it answers an administrator."""
        with requests.Session() as session:
            session.trust_env = False
            headers, ca = {"Authorization": f"Bearer {_ADMIN}"}, str(self.authority.ca)
            return session.request(
                method, self.uri + path, json=document, headers=headers, verify=ca, timeout=10
            )

    @property
    def _tokens(self) -> Path:
        return self.folder / "tokens.csv"

    @property
    def _key(self) -> Path:
        return self.folder / "accounts.key"

    @property
    def _public(self) -> Path:
        return self.folder / "accounts.pem"
