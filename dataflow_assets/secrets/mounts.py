"""Secrets as files below one folder, each at `<namespace>/<name>/<key>`, as Kubernetes mounts them.

Links are followed only as far as they stay below the folder, as those of a mounted Secret do.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from dataflow_assets.errors import PermanentError
from dataflow_assets.secrets.refs import PART, Absent, SecretKey

FOLDER = "DATAFLOW_SECRETS"
TRIES = 5  # to read a file that is replaced meanwhile
Read = TypeVar("Read")


def value(key: SecretKey) -> str | Absent:
    """The text of the file. Raises PermanentError where a file is there and cannot be used."""
    try:
        return replaced_meanwhile(lambda: _text(key))
    except OSError as error:
        raise PermanentError(
            f"secret file {key.place} below {FOLDER} cannot be read: {error.strerror}"
        ) from None
    except UnicodeDecodeError:
        raise PermanentError(f"secret file {key.place} below {FOLDER} is not UTF-8 text") from None


def _text(key: SecretKey) -> str | Absent:
    path = mounted_file(key.place)
    if path is None:
        folder = os.environ.get(FOLDER) or "not set"
        return Absent(f"{FOLDER} ({folder}) has no file {key.place} of its own")
    return path.read_bytes().decode()


def replaced_meanwhile(read: Callable[[], Read]) -> Read:
    """Returns what `read` returns, which is called again where its file is gone by then.

    Kubernetes replaces a Secret by leading a link to another folder, and removes the first one.
    Raises what `read` raises, FileNotFoundError after some attempts.
    """
    for _ in range(TRIES - 1):
        with suppress(FileNotFoundError):
            return read()
    return read()


def mounted_file(place: str) -> Path | None:
    """The file `namespace/name/key` below DATAFLOW_SECRETS; None where there is none.

    A link that leads out of the folder counts as no file: only what is below the folder is secret
    material of these flows. Raises PermanentError for anything that is not three plain names.
    """
    if not is_place(place):
        raise PermanentError(f"a file below {FOLDER} must be named namespace/name/key")
    folder = os.environ.get(FOLDER)
    if not folder:
        return None
    for _ in range(TRIES):
        root, path = os.path.realpath(folder), os.path.realpath(Path(folder, place))
        if not Path(path).is_relative_to(root):
            return None
        if os.path.isfile(path):  # noqa: PTH113 - never raises
            return Path(path)
    return None


def namespace(text: str) -> str | None:
    """The namespace whose Secret a text names as a file below DATAFLOW_SECRETS; else None.

    `text`: `namespace/name/key`, or an absolute path, wherever its links lead.
    """
    text = text.strip()
    if is_place(text):
        return text.partition("/")[0]
    folder = os.environ.get(FOLDER)
    if not folder or not text.startswith("/") or not text.isprintable():
        return None
    root, path = Path(os.path.realpath(folder)), Path(os.path.realpath(text))
    below = path.relative_to(root).parts if path.is_relative_to(root) else ()
    return below[0] if below else None


def is_place(text: str) -> bool:
    """Returns whether a text names a file below DATAFLOW_SECRETS: `namespace/name/key`."""
    parts = text.split("/")
    return len(parts) == 3 and all(PART.fullmatch(part) for part in parts)
