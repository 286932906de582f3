"""Writes to the API server: statuses, events, and finalizers that are done with."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from dataflow_assets.errors import TransientError
from dataflow_assets.kubernetes.objects import CustomResource
from dataflow_assets.kubernetes.outcome import INVALID
from dataflow_assets.kubernetes.status import Status
from dataflow_assets.languages.dataflow.model import API_VERSION, GROUP
from dataflow_assets.secrets.cluster_api import MERGE_PATCH, ask

_GONE = (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)  # deleted, or changed: its next event comes


def report(one: CustomResource, status: Status) -> bool:
    """Writes the status of an object where it has another one; returns whether it had.

    What several processes write at once is the same, and an event has one name for all of them.
    Raises TransientError where the API server cannot be reached or refuses.
    """
    wanted = status.document()
    if _without_nulls(wanted) == _without_nulls({key: one.status.get(key) for key in wanted}):
        return False
    reported = {each.get("message") for each in one.status.get("conditions") or ()}
    for condition in status.conditions:
        if condition.reason == INVALID and condition.message not in reported:
            event = _event(one, condition.message)
            _send("POST", f"/api/v1/namespaces/{one.namespace}/events", event)
    _send("PATCH", f"{one.path}/status", {"status": wanted})
    return True


def release(one: CustomResource) -> bool:
    """Takes the DataFlow Operator's finalizers off an object that is being deleted.

    They were to hold it until its pods are gone; without the operator nobody else takes them off.
    Raises TransientError as `report` does.
    """
    finalizers = one.metadata.get("finalizers") or []
    kept = [name for name in finalizers if not name.startswith(f"{GROUP}/")]
    if kept == finalizers:
        return False
    version = one.metadata["resourceVersion"]
    _send("PATCH", one.path, {"metadata": {"finalizers": kept, "resourceVersion": version}})
    return True


def _event(one: CustomResource, message: str) -> Mapping[str, Any]:
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    uid = str(one.metadata.get("uid"))
    digest = hashlib.sha256(f"{uid} {one.generation} {message}".encode()).hexdigest()[:16]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{one.name[:200]}.{digest}", "namespace": one.namespace},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": one.resource.kind,
            "name": one.name,
            "namespace": one.namespace,
            "uid": uid,
        },
        "type": "Warning",
        "reason": "InvalidManifest",
        "message": message,
        "source": {"component": "dataflow-assets"},
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }


def _send(method: str, path: str, document: Mapping[str, Any]) -> None:
    answer = ask(method, path, document, MERGE_PATCH if method == "PATCH" else "")
    if not answer.is_ok and answer.code not in _GONE:
        raise TransientError(f"{method} {path} is refused by the Kubernetes API: {answer.reason}")


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    return value
