"""A schema registry that speaks Confluent's API: schemas by id, versions by subject."""

from __future__ import annotations

import base64
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
import urllib3
from urllib3 import exceptions as refusals

from dataflow_assets.errors import PermanentError, RejectedRecord, TransientError
from dataflow_assets.formats.message_format import StoredSchema
from dataflow_assets.secrets.tls import Material, context

MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
TIMES = urllib3.Timeout(connect=5.0, read=30.0)
_NO_SCHEMA = 40403
_LARGEST = 2**31 - 1
ABSENT_SECONDS = 30.0
"""How long a registry is taken at its word that it has no schema of an id."""
_MOST_ABSENT = 10_000
_BUSY = frozenset({408, 425, 429})
_UNTRUSTED = ("certificate", "alert", "wrong version number", "unknown ca")


Answer = TypeVar("Answer", dict[str, Any], list[Any])


@dataclass(frozen=True)
class RegistryClient:
    """The address of a registry and its credentials; equal ones share connections and caches."""

    url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    material: Material | None = None
    """What is trusted, and who we are; None: what the system trusts."""

    def by_id(self, number: int) -> StoredSchema:
        """The schema of an id, with all that it refers to.

        Called inside tasks, once for each batch and id. An id never gets another schema, so that
        what was found is kept for the life of the process; that there is none, for half a minute.

        Args:
            number: as a message names it.

        Raises:
            RejectedRecord where the registry has no such schema; TransientError where it cannot be
            reached; PermanentError where a person must act.
        """
        if number > _LARGEST:
            raise RejectedRecord("decode", f"{self}: there can be no schema of the id {number}")
        if time.monotonic() < _absent.get((self, number), 0.0):
            raise self._no_schema(number)
        return _by_id(self, number)

    def latest(self, subject: str) -> tuple[int, StoredSchema]:
        """The newest schema of a subject, and its id.

        Called on the driver, once for each attempt of a run.

        Raises:
            PermanentError where there is no such subject, or a person must act; TransientError.
        """
        content = self._get(f"/subjects/{quote(subject, safe='')}/versions/latest")
        if content is None:
            raise self._no_subject(subject)
        return self._number(content), self._stored_schema(content)

    def versions(self, subject: str) -> tuple[int, ...]:
        """The versions that a subject has now, the oldest first.

        Called on the driver, once for each micro-batch of a table whose columns are the subject's.

        Raises:
            As `latest` does.
        """
        path = f"/subjects/{quote(subject, safe='')}/versions"
        numbers = self._content(self._ask("GET", path), path, list)
        if numbers is None:
            raise self._no_subject(subject)
        return tuple(sorted(numbers))

    def version(self, subject: str, number: int) -> StoredSchema:
        """The schema of one version of a subject, with all that it refers to.

        Called on the driver, once for each version when a table is opened that has its columns.

        Raises:
            As `latest` does; TransientError where the version has been deleted meanwhile.
        """
        content = self._get(f"/subjects/{quote(subject, safe='')}/versions/{number}")
        if content is None:
            raise TransientError(f"{self}: version {number} of subject {subject} has been deleted")
        try:
            return self._stored_schema(content)
        except RejectedRecord as error:
            raise PermanentError(error.reason) from None

    def register(self, subject: str, kind: str, text: str) -> int:
        """The id of a schema in a subject; one that is new there is registered.

        Called on the driver, once for each attempt of a run.

        Raises:
            PermanentError where the registry refuses the schema, for instance because readers of
            the subject's older schemas could not read what it writes; TransientError.
        """
        body: dict[str, Any] = {"schema": text}
        if kind != "AVRO":
            body["schemaType"] = kind
        path = f"/subjects/{quote(subject, safe='')}/versions"
        answer = self._ask("POST", path, msgspec.json.encode(body))
        if answer.status in (409, 422):
            raise PermanentError(
                f"{self}: refuses the schema for subject {subject}: {_message(answer)}; register a "
                "compatible schema, or name another subject"
            )
        content = self._content(answer, path, dict)
        if content is None:
            raise self._no_registry(answer, path)
        return self._number(content)

    def __str__(self) -> str:
        return f"schema registry {self.url}"

    def _stored_schema(self, content: Mapping[str, Any]) -> StoredSchema:
        references: dict[str, str] = {}
        self._follow(content, references)
        return StoredSchema(
            content.get("schemaType") or "AVRO", self._schema(content), tuple(references.items())
        )

    def _number(self, content: Mapping[str, Any]) -> int:
        if not isinstance(content.get("id"), int):
            raise self._no_answer("id")
        return int(content["id"])

    def _schema(self, content: Mapping[str, Any]) -> str:
        if not isinstance(content.get("schema"), str):
            raise self._no_answer("schema")
        return str(content["schema"])

    def _no_answer(self, lacks: str) -> PermanentError:
        return PermanentError(
            f"{self}: an answer without `{lacks}`; url must be where a registry answers in "
            "Confluent's API"
        )

    def _no_subject(self, subject: str) -> PermanentError:
        return PermanentError(f"{self}: there is no subject {subject}: register a schema for it")

    def _no_schema(self, number: int) -> RejectedRecord:
        return RejectedRecord("decode", f"{self} has no schema of the id {number}")

    def _follow(self, content: Mapping[str, Any], texts: dict[str, str]) -> None:
        """Each reference after those that it refers to itself."""
        for one in content.get("references") or ():
            if one["name"] in texts:
                continue
            path = f"/subjects/{quote(one['subject'], safe='')}/versions/{one['version']}"
            inner = self._get(path)
            if inner is None:
                raise RejectedRecord(
                    "decode",
                    f"{self} has no version {one['version']} of subject {one['subject']}, which "
                    "the schema refers to",
                )
            self._follow(inner, texts)
            texts[one["name"]] = self._schema(inner)

    def _get(self, path: str) -> Mapping[str, Any] | None:
        return self._content(self._ask("GET", path), path, dict)

    def _ask(self, method: str, path: str, body: bytes | None = None) -> urllib3.BaseHTTPResponse:
        headers = {"Accept": f"{MEDIA_TYPE}, application/json", **self._identity()}
        if body is not None:
            headers["Content-Type"] = MEDIA_TYPE
        url = self.url.rstrip("/") + path
        try:
            with warnings.catch_warnings():  # the log has a warning of our own
                warnings.simplefilter("ignore", refusals.InsecureRequestWarning)
                return _pool(self).request(method, url, headers=headers, body=body)
        except refusals.SSLError as error:
            text = str(error)
            if any(word in text.lower() for word in _UNTRUSTED):
                raise PermanentError(
                    f"{self}: no encrypted connection: {text}; check schemaRegistry.tls and the "
                    "registry's certificate"
                ) from None
            raise TransientError(
                f"{self}: {text}; it may ask for a client's certificate (schemaRegistry.tls)"
            ) from None
        except refusals.LocationValueError as error:
            raise PermanentError(f"{self}: not an address: {error}") from None
        except refusals.HTTPError as error:
            raise TransientError(f"{self} cannot be reached: {_reason(error)}") from None

    def _identity(self) -> dict[str, str]:
        if self.token is not None:
            return {"Authorization": f"Bearer {self.token}"}
        if self.username is None or self.password is None:
            return {}
        pair = f"{self.username}:{self.password}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}

    def _content(
        self, answer: urllib3.BaseHTTPResponse, path: str, kind: type[Answer]
    ) -> Answer | None:
        if answer.status in (401, 403):
            allowed = "refuses the credentials" if answer.status == 401 else "allows no access"
            raise PermanentError(
                f"{self} {allowed} (HTTP {answer.status}): check schemaRegistry.basicAuth or "
                "schemaRegistry.bearerToken"
            )
        if answer.status in _BUSY or answer.status >= 500:
            raise TransientError(f"{self}: HTTP {answer.status} for {path}: {_message(answer)}")
        if answer.status == 404 and _error_code(answer) // 100 == _NO_SCHEMA // 100:
            return None
        try:
            content = msgspec.json.decode(answer.data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            content = None
        if answer.status != 200 or not isinstance(content, kind):
            raise self._no_registry(answer, path)
        return content

    def _no_registry(self, answer: urllib3.BaseHTTPResponse, path: str) -> PermanentError:
        return PermanentError(
            f"{self}: HTTP {answer.status} for {path}: {_message(answer)}; url must be where a "
            "registry answers in Confluent's API"
        )


_absent: dict[tuple[RegistryClient, int], float] = {}


@lru_cache(maxsize=4096)
def _by_id(registry: RegistryClient, number: int) -> StoredSchema:
    content = registry._get(f"/schemas/ids/{number}")  # noqa: SLF001 - its own cache
    if content is None:
        while len(_absent) >= _MOST_ABSENT:
            _absent.pop(next(iter(_absent)), None)
        _absent[registry, number] = time.monotonic() + ABSENT_SECONDS
        raise registry._no_schema(number)  # noqa: SLF001
    return registry._stored_schema(content)  # noqa: SLF001


@lru_cache(maxsize=64)
def _pool(registry: RegistryClient) -> urllib3.PoolManager:
    """Connections of this process; tasks that run side by side have one each."""
    if not registry.url.lower().startswith("https:"):
        return urllib3.PoolManager(timeout=TIMES, retries=False)
    trusted = context(registry.material or Material(), "schemaRegistry.tls")
    return urllib3.PoolManager(timeout=TIMES, retries=False, ssl_context=trusted)


def _error_code(answer: urllib3.BaseHTTPResponse) -> int:
    """Confluent's number of an error; 0 where the answer has none."""
    try:
        content = msgspec.json.decode(answer.data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return 0
    code = content.get("error_code") if isinstance(content, dict) else None
    return code if isinstance(code, int) else 0


def _message(answer: urllib3.BaseHTTPResponse) -> str:
    text = answer.data.decode("utf-8", "replace")
    try:
        content = msgspec.json.decode(text)
    except msgspec.DecodeError:
        content = None
    message = content.get("message") if isinstance(content, dict) else None
    shown = message if isinstance(message, str) else text
    return " ".join(shown.split())[:300] or "no content"


def _reason(error: Exception) -> str:
    """Without the name of a Python object at its beginning."""
    return str(error).rpartition(">: ")[2] or str(error)
