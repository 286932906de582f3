"""Archives that servers run from, unpacked into the cache once."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from dataflow_assets.spark import jars


def unpacked(name: str, tidy: Callable[[Path], None] = lambda _: None) -> Path:
    """The folder of the one archive of a set of the lock, without the folder around its files.

    Called whenever such a server starts; the first start takes as long as unpacking does.

    Args:
        name: of the set.
        tidy: removes what nobody needs from the folder, before anybody uses it.
    """
    (archive,) = jars.fetch(name)
    folder = jars.cache() / f"{name}-{archive.parent.name}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            (inner,) = _extracted(archive, Path(scratch)).iterdir()
            tidy(inner)
            try:
                inner.rename(folder)
            except OSError:
                if not folder.exists():  # else another session was faster
                    raise
    return folder


def _extracted(archive: Path, scratch: Path) -> Path:
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(scratch)  # noqa: S202 - its hash is locked
    else:
        with tarfile.open(archive) as packed:
            packed.extractall(scratch, filter="tar")
    return scratch


def only(folder: Path, names: frozenset[str]) -> None:
    """Removes all but these from a folder."""
    for each in folder.iterdir():
        if each.name not in names:
            shutil.rmtree(each)
