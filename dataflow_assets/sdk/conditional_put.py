"""Puts an S3 object that must not exist yet (`If-None-Match: *`), which Arrow's client cannot.

One request, signed with AWS Signature Version 4 and never repeated: a lost answer is an error, and
whoever comes next finds out whether the object is there.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlsplit

from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.causes import StoreSilent, cause

TIMEOUT = (5.0, 60.0)  # seconds to connect, seconds to answer
_ALGORITHM = "AWS4-HMAC-SHA256"

_REFUSALS = {
    301: "check the region of the bucket",
    401: "check the credentials",
    403: "check the credentials, whether they may put objects there, and the machine's clock",
    404: "create the bucket, or correct its name",
    501: "the store does not know `If-None-Match`: use one that does, as AWS does",
}
"""By status: the object was not put, and asking again changes nothing."""


@dataclass(frozen=True)
class Keys:
    """The credentials of a request."""

    access: str
    secret: str = field(repr=False)
    session: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class ObjectStore:
    """Where an S3 store is, and who asks it.

    `keys`: None for those that AWS's own clients find: in the environment, in a profile, or by the
    role of the machine or pod.
    """

    endpoint: str | None = None
    region: str | None = None
    path_style: bool = True
    keys: Keys | None = None


def put_new(store: ObjectStore, path: str, body: bytes) -> bool:
    """Puts `bucket/key`; False where it exists.

    Called on the driver, once for each commit.

    Args:
        store: where, and by whom.
        path: bucket and key.
        body: the object's content.

    Raises:
        OSError: any other answer, or none (StoreSilent): the object may be there.
        PermanentError: nobody has given credentials, or the store refuses them or the request.
    """
    import requests

    region = store.region or "us-east-1"
    url = _url(store, region, *path.split("/", 1))
    headers = _sign(url, body, store.keys or _find(path), region, datetime.now(UTC))
    try:
        answer = requests.put(url, body, headers=headers, timeout=TIMEOUT)
    except requests.ConnectionError as error:
        raise StoreSilent.at(store.endpoint, cause(error)) from error
    if answer.status_code in (200, 412):
        return answer.status_code == 200
    told = " ".join(answer.text.split())[:300]
    said = f"PUT {url} was answered with HTTP {answer.status_code}: {told}"
    if advice := _REFUSALS.get(answer.status_code):
        raise PermanentError(f"{said}; {advice}")
    raise OSError(said)


def _find(path: str) -> Keys:
    found = _chain()
    if found is None:
        raise PermanentError(
            f"writing to {path} needs credentials, and none were found: set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or give the machine or pod a role that may write"
        )
    keys = found.get_frozen_credentials()
    return Keys(keys.access_key, keys.secret_key, keys.token)


@lru_cache(maxsize=1)
def _chain() -> Any:
    from botocore.session import get_session

    return get_session().get_credentials()


def _url(store: ObjectStore, region: str, bucket: str, key: str) -> str:
    base = urlsplit(store.endpoint or f"https://s3.{region}.amazonaws.com")
    if store.path_style:
        return f"{base.scheme}://{base.netloc}/{bucket}/{quote(key)}"
    return f"{base.scheme}://{bucket}.{base.netloc}/{quote(key)}"


def _sign(url: str, body: bytes, keys: Keys, region: str, now: datetime) -> dict[str, str]:
    """The headers of the request, its signature among them."""
    parts, digest = urlsplit(url), hashlib.sha256(body).hexdigest()
    stamp, scope = f"{now:%Y%m%dT%H%M%SZ}", f"{now:%Y%m%d}/{region}/s3/aws4_request"
    headers = {"host": parts.netloc, "if-none-match": "*", "x-amz-content-sha256": digest}
    headers["x-amz-date"] = stamp
    if keys.session:
        headers["x-amz-security-token"] = keys.session
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    request = f"PUT\n{parts.path}\n\n{lines}\n{names}\n{digest}"
    text = f"{_ALGORITHM}\n{stamp}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = f"AWS4{keys.secret}".encode()
    for step in scope.split("/"):
        key = hmac.digest(key, step.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    credential = f"{_ALGORITHM} Credential={keys.access}/{scope}"
    signed = {"Authorization": f"{credential}, SignedHeaders={names}, Signature={signature}"}
    return headers | signed
