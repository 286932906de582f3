"""Puts an S3 object that must not exist yet (`If-None-Match: *`), which Arrow's client cannot.

One request, signed with AWS Signature Version 4 and never repeated: a lost answer is an error, and
whoever comes next finds out whether the object is there.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit

import requests

from dataflow_assets.connectors.files.options import FilesConnection
from dataflow_assets.errors import PermanentError

TIMEOUT = (5.0, 60.0)  # seconds to connect, seconds to answer
_ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True)
class Keys:
    """The credentials of a request."""

    access: str
    secret: str = field(repr=False)
    session: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, folder: FilesConnection) -> Keys:
        """The declared ones, else those of the environment."""
        if folder.access_key and folder.secret_access_key:
            return cls(
                folder.access_key.get_secret_value(), folder.secret_access_key.get_secret_value()
            )
        try:
            access, secret = (
                os.environ[f"AWS_{n}"] for n in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY")
            )
        except KeyError as error:
            raise PermanentError(
                f"writing to {folder.path} needs keys for its conditional puts: set accessKey and "
                "secretAccessKey, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the "
                "environment (the role of a machine can be used for reading only)"
            ) from error
        return cls(access, secret, os.environ.get("AWS_SESSION_TOKEN"))


def put_new(folder: FilesConnection, path: str, body: bytes) -> bool:
    """Puts `bucket/key`; False where it exists. Raises OSError for any other answer."""
    region = folder.region or "us-east-1"
    url = _url(folder, region, *path.split("/", 1))
    headers = _signed(url, body, Keys.of(folder), region, datetime.now(UTC))
    answer = requests.put(url, body, headers=headers, timeout=TIMEOUT)
    if answer.status_code in (200, 412):
        return answer.status_code == 200
    raise OSError(f"PUT {url} was answered with HTTP {answer.status_code}: {answer.text[:300]}")


def _url(folder: FilesConnection, region: str, bucket: str, key: str) -> str:
    base = urlsplit(folder.endpoint or f"https://s3.{region}.amazonaws.com")
    if folder.s3_path_style_access:
        return f"{base.scheme}://{base.netloc}/{bucket}/{quote(key)}"
    return f"{base.scheme}://{bucket}.{base.netloc}/{quote(key)}"


def _signed(url: str, body: bytes, keys: Keys, region: str, now: datetime) -> dict[str, str]:
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
