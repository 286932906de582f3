"""Texts as files that one process alone can read, for clients that take files only."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
from functools import lru_cache

# Per process. A fork has its parent's files: what is in memory has the same number there.
_lock = threading.Lock()
_files: dict[str, tuple[str, int]] = {}


def private_file(text: str) -> str:
    """A path under which this process alone can read the text, for clients that take files only.

    Args:
        text: what the file holds; an equal text has the same file.

    Returns:
        The path, which is good as long as the process lives, and has its owner's rights only.
    """
    with _lock:
        path, number = _files.get(text, ("", 0))
        if not path or not _is_there(path, number):
            path = _in_memory(text) if hasattr(os, "memfd_create") else _on_disk(text)
            _files[text] = path, os.stat(path).st_ino  # noqa: PTH116 - a link of /proc
        return path


def _is_there(path: str, number: int) -> bool:
    try:
        return os.stat(path).st_ino == number  # noqa: PTH116 - a link of /proc
    except OSError:
        return False


def _in_memory(text: str) -> str:
    descriptor = os.memfd_create("dataflow-assets")
    os.fchmod(descriptor, 0o600)  # libpq takes no key that others may read
    os.write(descriptor, text.encode())
    return f"/proc/self/fd/{descriptor}"


def _on_disk(text: str) -> str:
    descriptor, path = tempfile.mkstemp(suffix=".pem", dir=_folder(os.getpid()))
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    return path


@lru_cache(maxsize=1)
def _folder(_: int) -> str:
    folder = tempfile.mkdtemp(prefix="dataflow-assets-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
