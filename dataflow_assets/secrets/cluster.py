"""Secrets from the Kubernetes API, for a process that runs inside a cluster.

A service account that may not read a Secret is no error: the next place is asked, and
what the API server said is told where no place has the Secret. A token that is not accepted is one
of a moment: no other place is asked, because its value may be an old one.

Sensors resolve all flows every few seconds, so an answer holds for `SECONDS`; `forget` ends that.
"""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Mapping
from http import HTTPStatus

from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.secrets import cluster_api
from dataflow_assets.secrets.refs import Absent, SecretKey

SECONDS = 10.0  # how long an answer holds

_Data = Mapping[str, str]
_answers: dict[tuple[str, str, str], tuple[float, _Data | Absent]] = {}


def value(key: SecretKey) -> str | Absent:
    """The value, decoded and verbatim.

    Raises TransientError where the API server cannot be reached or fails, and PermanentError where
    the Secret is there and has no such key, or no text under it.
    """
    if not cluster_api.inside():
        return Absent("this process is not in a Kubernetes cluster")
    data = _from_cache(key)
    if isinstance(data, Absent):
        return data
    if key.key not in data:
        raise PermanentError(
            f"key {key.key} not found in secret {key.secret} of the Kubernetes API; "
            f"it has the keys {', '.join(sorted(data)) or '(none)'}"
        )
    try:
        return base64.b64decode(data[key.key]).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise PermanentError(
            f"key {key.key} of secret {key.secret} of the Kubernetes API is not UTF-8 text"
        ) from None


def forget() -> None:
    """The next questions are asked of the API server: an answer may be out of date."""
    _answers.clear()


def _from_cache(key: SecretKey) -> _Data | Absent:
    cached = (cluster_api.server(), key.namespace, key.name)
    until, data = _answers.get(cached, (0.0, Absent("")))
    if time.monotonic() >= until:
        data = _ask(key)
        _answers[cached] = time.monotonic() + SECONDS, data
    return data


def _ask(key: SecretKey) -> _Data | Absent:
    answer = cluster_api.ask("GET", f"/api/v1/namespaces/{key.namespace}/secrets/{key.name}")
    if answer.code == HTTPStatus.OK:
        return {name: str(text) for name, text in (answer.document.get("data") or {}).items()}
    if answer.code == HTTPStatus.NOT_FOUND:
        return Absent(f"the Kubernetes API has no secret {key.secret}")
    if answer.code == HTTPStatus.FORBIDDEN:
        return Absent(f"the Kubernetes API refused secret {key.secret}: {answer.reason}")
    raise TransientError(
        f"secret {key.secret} cannot be read from the Kubernetes API at {cluster_api.server()}: "
        f"{answer.reason}"
    )
