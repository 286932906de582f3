"""Folders of manifests that somebody watches: read again only when a file has changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from dataflow_assets.manifests.folders import is_manifest
from dataflow_assets.manifests.load import Loaded, load


def fingerprint(folders: Iterable[Path]) -> str:
    """Changes when a file in the folders does; costs one look at the folder."""
    stamps = sorted(_stamps(folders))
    return str(hash(tuple(stamps)))


def _stamps(folders: Iterable[Path]) -> Iterator[tuple[str, int, int]]:
    for folder in folders:
        paths = [folder] if folder.is_file() else folder.rglob("*")
        for path in paths:
            with suppress(OSError):  # it may have gone since the folder was listed
                if not (is_manifest(path) or path.suffix == ".py") or not path.is_file():
                    continue
                stat = path.stat()
                yield str(path), stat.st_mtime_ns, stat.st_size


class Watched:
    """The manifests of some folders, as they are now."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._stamp = ""
        self._loaded = Loaded()

    def __call__(self) -> Loaded:
        """Returns what can be used, and what cannot; asked often, and by one thread."""
        stamp = fingerprint(self._folders)
        if stamp != self._stamp:
            loaded = load([folder for folder in self._folders if folder.exists()])
            self._loaded = replace(loaded, paths=tuple(self._folders))
            self._stamp = stamp
        return self._loaded
