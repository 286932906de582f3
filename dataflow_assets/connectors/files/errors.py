"""Meanings of the errors of a disk and of an S3 store for the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dataflow_assets.connectors.files.options import FilesConnection
from dataflow_assets.errors import DataflowError, PermanentError, TransientError
from dataflow_assets.sdk.causes import no_room, store_silence

# The client of S3 tells these apart in its text only.
_DENIED = (
    "ACCESS_DENIED",
    "INVALID_ACCESS_KEY",
    "SIGNATURE_DOES_NOT_MATCH",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "AccessDenied",
    "HTTP 403",
    "HTTP status 403",
)
_NO_BUCKET = ("NO_SUCH_BUCKET", "NoSuchBucket", "Bucket '", "HTTP 404")
_DAMAGED = ("BadGzipFile", "Truncated compressed stream", "decompress failed")


@contextmanager
def translate_errors(folder: FilesConnection, doing: str) -> Iterator[None]:
    """Turns errors of the disk, of Arrow and of HTTP into ours."""
    try:
        yield
    except DataflowError:
        raise
    except (OSError, ValueError) as error:
        what = f"cannot {doing} {folder.path}"
        if silent := store_silence(error, folder.endpoint):
            raise TransientError(f"{what}: {silent}") from error
        raise _ours(error, what) from error


def _ours(error: Exception, what: str) -> DataflowError:
    line = str(error).partition("\n")[0][:500]
    text = f"{what}: {type(error).__name__}: {line}"
    if isinstance(error, PermissionError) or any(word in text for word in _DENIED):
        return PermanentError(f"{text}; check the credentials and what they may do")
    if any(word in text for word in _NO_BUCKET):
        return PermanentError(f"{text}; create the bucket, or check path and s3Endpoint")
    if any(word in text for word in _DAMAGED):
        return PermanentError(f"{text}; the file is damaged, or was not written to its end")
    if isinstance(error, (FileNotFoundError, NotADirectoryError, ValueError)):
        return PermanentError(text)
    return TransientError(f"{text}{no_room(text)}")
