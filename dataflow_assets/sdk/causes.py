"""What is at the bottom of an error of the way to a server, in words.

Clients over HTTP wrap the refusal of the network two or three times, each with the names of Python
objects and the whole request in its text. Arrow's client of S3 hides it behind curl's words.
"""

from __future__ import annotations

import os
import re
from urllib.parse import urlsplit

LONGEST = 200
_CURL = re.compile(r"curlCode: \d+, ([^;]+)")
_PORTS = {"http": 80, "https": 443}
_NO_ROOM = re.compile(
    r"AWS Error (?:INTERNAL_FAILURE|SERVICE_UNAVAILABLE|UNKNOWN \(HTTP status 5\d\d\)) during "
    r"(?:PutObject|UploadPart|\w+MultipartUpload) operation"
    r"|PUT \S+ was answered with HTTP 5\d\d"
    r"|StorageFull|QuotaExceeded"  # as MinIO and Ceph say it
)


def cause(error: BaseException) -> str:
    """The innermost error as a clause, such as `Connection refused`.

    Called on the driver and in tasks with what a client has raised.

    Args:
        error: in whose causes is looked.

    Returns:
        One line of 200 characters at most, never empty.
    """
    inner = [getattr(error, "reason", None), error.__cause__, error.__context__, *error.args[-1:]]
    deeper = next((each for each in inner if isinstance(each, BaseException)), None)
    if deeper is not None and deeper is not error:
        return cause(deeper)
    if isinstance(error, OSError) and error.errno and error.errno > 1:
        return error.strerror or os.strerror(error.errno)
    return " ".join(str(error).split())[:LONGEST] or type(error).__name__


class StoreSilent(OSError):
    """An object store has not answered; its text is a clause with what a person must check."""

    @classmethod
    def at(cls, endpoint: str | None, reason: str) -> StoreSilent:
        """By the address of the store, None for AWS's own, and what the client has met."""
        return cls(
            f"no answer from the object store at {_host_port(endpoint)}: {reason}; check that a "
            "store runs there, that this machine reaches it, and that its address is right: "
            "s3Endpoint of a manifest, else AWS_S3_ENDPOINT"
        )


def store_silence(error: BaseException, endpoint: str | None) -> StoreSilent | None:
    """Returns what to say instead of an error, where an object store has not answered.

    Called on the driver and in tasks with what Arrow's client of S3, or `put_new`, has raised.

    Args:
        error: what was raised.
        endpoint: the address of the store; None for AWS's own.

    Returns:
        None where the network is not the reason.
    """
    if isinstance(error, StoreSilent):
        return error
    found = _CURL.search(str(error))
    return StoreSilent.at(endpoint, found[1].strip()) if found else None


def no_room(text: str) -> str:
    """Returns what to check where an object store has not taken what it was to store.

    Called on the driver with the text of an error, its own or one of a task. Few stores say that
    they have no room: most answer with an error of their own, as for any other trouble.

    Args:
        text: of the error, as Arrow's client of S3 raises it.

    Returns:
        A clause that begins with a semicolon; empty where the text is about something else.
    """
    if not _NO_ROOM.search(text):
        return ""
    return (
        "; an object store without room answers like this: check its disk, its quota and its log; "
        "the flow goes on from its checkpoint once the store takes files again"
    )


def _host_port(url: str | None) -> str:
    parts = urlsplit(url or "")
    port = parts.port or _PORTS.get(parts.scheme)
    return f"{parts.hostname}:{port}" if parts.hostname else "AWS"
