"""Secrets from the Kubernetes API, for a process that runs inside a cluster.

Kubernetes gives each pod the address of its API server in the environment, and a token and a
certificate authority as files. The token is replaced while the pod runs, so it is read for each
request. A service account that may not read a Secret is no error: the next place is asked, and
what the API server said is told where no place has the Secret. A token that is not accepted is one
of a moment: no other place is asked, because its value may be an old one.

Sensors resolve all flows every few seconds, so an answer holds for `SECONDS`; `forget` ends that.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import time
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.secrets.refs import Absent, SecretKey

ACCOUNT = "DATAFLOW_SERVICE_ACCOUNT"
"""The folder with `token` and `ca.crt`, where Kubernetes mounts them in another one."""
ACCOUNT_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
HOST, PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
SECONDS = 10.0  # how long an answer holds
TIMEOUT = (3.0, 10.0)  # seconds to connect, seconds to answer

_Data = Mapping[str, str]
_answers: dict[tuple[str, str, str], tuple[float, _Data | Absent]] = {}


def value(key: SecretKey) -> str | Absent:
    """The value, decoded and verbatim.

    Raises TransientError where the API server cannot be reached or fails, and PermanentError where
    the Secret is there and has no such key, or no text under it.
    """
    if not inside():
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


def inside() -> bool:
    """Returns whether this process has a Kubernetes API to ask, and a token to ask with."""
    return bool(os.environ.get(HOST)) and (_folder() / "token").is_file()


def forget() -> None:
    """The next questions are asked of the API server: an answer may be out of date."""
    _answers.clear()


def _from_cache(key: SecretKey) -> _Data | Absent:
    cached = (_server(), key.namespace, key.name)
    until, data = _answers.get(cached, (0.0, Absent("")))
    if time.monotonic() >= until:
        data = _ask(key)
        _answers[cached] = time.monotonic() + SECONDS, data
    return data


def _ask(key: SecretKey) -> _Data | Absent:
    status, answer = _get(f"/api/v1/namespaces/{key.namespace}/secrets/{key.name}")
    reason = f"{status} {answer.get('message') or answer.get('reason') or ''}".strip()
    if status == HTTPStatus.OK:
        return {name: str(text) for name, text in (answer.get("data") or {}).items()}
    if status == HTTPStatus.NOT_FOUND:
        return Absent(f"the Kubernetes API has no secret {key.secret}")
    if status == HTTPStatus.FORBIDDEN:
        return Absent(f"the Kubernetes API refused secret {key.secret}: {reason}")
    raise TransientError(
        f"secret {key.secret} cannot be read from the Kubernetes API at {_server()}: {reason}"
    )


def _get(path: str) -> tuple[int, dict[str, Any]]:
    import requests

    folder = _folder()
    with requests.Session() as session:
        session.trust_env = False  # a proxy of the environment does not lead to the cluster's API
        try:
            headers = {"Authorization": f"Bearer {(folder / 'token').read_text().strip()}"}
            answer = session.get(
                _server() + path, headers=headers, verify=str(folder / "ca.crt"), timeout=TIMEOUT
            )
        except requests.exceptions.InvalidHeader:  # whose text shows the token
            raise TransientError(
                f"the token of the service account in {folder} is not one word: the Kubernetes API "
                "cannot be asked for secrets with it"
            ) from None
        except (requests.RequestException, OSError) as error:
            raise TransientError(
                f"the Kubernetes API at {_server()} cannot be asked for secrets: "
                f"{type(error).__name__}: {error}"
            ) from error
    return answer.status_code, _document(answer.content)


def _document(content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _server() -> str:
    host = os.environ[HOST]
    return f"https://{f'[{host}]' if ':' in host else host}:{os.environ.get(PORT) or 443}"


def _folder() -> Path:
    return Path(os.environ.get(ACCOUNT) or ACCOUNT_FOLDER)
