"""A digest of the files that values name: certificates are renewed under the same path."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from dataflow_assets.secrets import mounts

_LONGEST = 1024 * 1024  # bytes; no certificate and no file of secrets is longer


def digest(values: Iterable[str]) -> str:
    """Tells whether files have changed since an earlier call with the same values.

    Called on the driver, whenever a flow is opened, and once more after a permanent error.

    Args:
        values: absolute paths and `namespace/name/key`; what names no file counts for nothing.

    Returns:
        The digest, empty where no file is named; a file that cannot be read counts as empty.
    """
    with_paths = ((value, _path_of(value.strip())) for value in sorted(set(values)))
    pairs = [(value.encode(), _content(path)) for value, path in with_paths if path is not None]
    parts = (hashlib.sha256(part).digest() for pair in pairs for part in pair)
    return hashlib.sha256(b"".join(parts)).hexdigest() if pairs else ""


def _path_of(text: str) -> Path | None:
    if mounts.is_place(text):
        return mounts.mounted_file(text)
    return Path(text) if text.startswith("/") and text.isprintable() else None


def _content(path: Path) -> bytes:
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as file:
            return file.read(_LONGEST)
    except OSError:
        return b""
