"""Requests to the Kubernetes API, by a process that runs inside a cluster.

Kubernetes gives each pod the address of its API server in the environment, and a token and a
certificate authority as files. The token is replaced while the pod runs, so it is read for each
request.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dataflow_assets.errors import TransientError

if TYPE_CHECKING:
    import requests

ACCOUNT = "DATAFLOW_SERVICE_ACCOUNT"
"""The folder with `token` and `ca.crt`, where Kubernetes mounts them in another one."""
HOST, PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
MERGE_PATCH = "application/merge-patch+json"
_ACCOUNT_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
_CONNECT_SECONDS, _READ_SECONDS = 3.0, 10.0


class Answer(NamedTuple):
    """Code and document that the API server has answered."""

    code: int
    document: Mapping[str, Any]

    @property
    def is_ok(self) -> bool:
        return self.code < HTTPStatus.BAD_REQUEST

    @property
    def reason(self) -> str:
        text = self.document.get("message") or self.document.get("reason") or ""
        return f"{self.code} {text}".strip()


def inside() -> bool:
    """Returns whether this process has a Kubernetes API to ask, and a token to ask with."""
    return bool(os.environ.get(HOST)) and (_folder() / "token").is_file()


def server() -> str:
    host = os.environ[HOST]
    return f"https://{f'[{host}]' if ':' in host else host}:{os.environ.get(PORT) or 443}"


def namespace() -> str:
    """Returns the namespace of this pod, `default` where Kubernetes has not mounted it."""
    file = _folder() / "namespace"
    return file.read_text().strip() if file.is_file() else "default"


def ask(
    method: str, path: str, document: Mapping[str, Any] | None = None, content: str = ""
) -> Answer:
    """Sends one request. Raises TransientError where the API server cannot be reached.

    Args:
        method: of HTTP.
        path: below the address of the server, with its query.
        document: to send.
        content: the media type of `document`, where it is not plain JSON.
    """
    with _request(method, path, _READ_SECONDS, json=document, content=content) as answer:
        return Answer(answer.status_code, _document(answer.content))


def follow(path: str, silence: float) -> Iterator[Answer]:
    """Yields the events of a watch until the API server ends it; a refusal is the only answer.

    Args:
        path: of the watch.
        silence: for so many seconds the API server may say nothing.

    Raises:
        TransientError: where the API server cannot be reached, or is silent for too long.
    """
    with _request("GET", path, silence, stream=True) as answer:
        if answer.status_code != HTTPStatus.OK:
            yield Answer(answer.status_code, _document(answer.content))
            return
        for line in answer.iter_lines():
            yield Answer(answer.status_code, _document(line))


@contextmanager
def _request(
    method: str, path: str, seconds: float, *, content: str = "", **more: Any
) -> Iterator[requests.Response]:
    import requests

    folder = _folder()
    with requests.Session() as session:
        session.trust_env = False  # a proxy of the environment does not lead to the cluster's API
        try:
            headers = {"Authorization": f"Bearer {(folder / 'token').read_text().strip()}"}
            headers |= {"Content-Type": content} if content else {}
            more |= {"verify": str(folder / "ca.crt"), "timeout": (_CONNECT_SECONDS, seconds)}
            yield session.request(method, server() + path, headers=headers, **more)
        except requests.exceptions.InvalidHeader:  # whose text shows the token
            raise TransientError(
                f"the token of the service account in {folder} is not one word: the Kubernetes API "
                "cannot be asked with it"
            ) from None
        except (requests.RequestException, OSError) as error:
            raise TransientError(
                f"the Kubernetes API at {server()} cannot be asked: {type(error).__name__}: {error}"
            ) from error


def _document(content: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(content)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _folder() -> Path:
    return Path(os.environ.get(ACCOUNT) or _ACCOUNT_FOLDER)
