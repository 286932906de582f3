"""What the tests of Nessie share: its ends on the test server, and its own interface."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import requests

from dataflow_assets.connectors.iceberg import NessieSink, NessieSource
from devservers import Nessie


def connection(nessie: Nessie, namespace: str, table: str) -> dict[str, Any]:
    """The keys that source and sink share."""
    return {
        "baseURL": nessie.uri,
        "namespace": namespace,
        "table": table,
        "s3Endpoint": nessie.store.s3_endpoint,
        "s3Region": nessie.store.region,
        "accessKey": nessie.store.access_key,
        "secretAccessKey": nessie.store.secret_key,
    }


def make_sink(nessie: Nessie, namespace: str, **changes: Any) -> NessieSink:
    config = connection(nessie, namespace, "orders") | {"autoCreateTable": True}
    return NessieSink.model_validate(config | changes)


def make_source(nessie: Nessie, namespace: str, **changes: Any) -> NessieSource:
    return NessieSource.model_validate(connection(nessie, namespace, "events") | changes)


class Trees:
    """Nessie's own interface: branches, tags, merges."""

    def __init__(self, nessie: Nessie) -> None:
        self._uri = f"{nessie.uri}/api/v2/trees"

    def head(self, reference: str) -> dict[str, str]:
        answer = requests.get(f"{self._uri}/{quote(reference, safe='')}", timeout=10)
        answer.raise_for_status()
        found: dict[str, str] = answer.json()["reference"]
        return found

    def make(self, name: str, kind: str = "BRANCH", of: str = "main") -> None:
        """A branch or tag at the head of another one."""
        query = {"name": name, "type": kind}
        requests.post(self._uri, params=query, json=self.head(of), timeout=10).raise_for_status()

    def delete(self, branch: str) -> None:
        place = quote(f"{branch}@{self.head(branch)['hash']}", safe="")
        requests.delete(f"{self._uri}/{place}", timeout=10).raise_for_status()

    def merge(self, source: str, into: str = "main", mode: str = "NORMAL") -> None:
        """`mode`: FORCE takes the source's state of a table that both have changed."""
        into_ = self.head(into)
        body = {"fromRefName": source, "fromHash": self.head(source)["hash"]}
        body["defaultKeyMergeMode"] = mode
        place = quote(f"{into}@{into_['hash']}", safe="")
        answer = requests.post(f"{self._uri}/{place}/history/merge", json=body, timeout=10)
        answer.raise_for_status()
        assert answer.json()["wasApplied"]

    def assign(self, name: str, to: dict[str, str]) -> None:
        """Moves a branch to a commit."""
        place = quote(f"{name}@{self.head(name)['hash']}", safe="")
        requests.put(f"{self._uri}/{place}", json=to, timeout=10).raise_for_status()

    def put_back(self, branch: str, key: tuple[str, ...], to: dict[str, str]) -> None:
        """Commits the state that a table had at another commit of the branch."""
        there = f"{branch}@{to['hash']}"
        then = f"{self._uri}/{quote(there, safe='')}/contents/{'.'.join(key)}"
        found = requests.get(then, timeout=10)
        found.raise_for_status()
        change = {"type": "PUT", "key": {"elements": key}, "content": found.json()["content"]}
        body: dict[str, Any] = {"commitMeta": {"message": "back"}, "operations": [change]}
        place = quote(f"{branch}@{self.head(branch)['hash']}", safe="")
        answer = requests.post(f"{self._uri}/{place}/history/commit", json=body, timeout=10)
        answer.raise_for_status()
