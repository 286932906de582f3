"""Which files to read: manifests below a folder, and the neighbours of a single file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from stat import S_ISREG

from dataflow_assets.errors import Finding
from dataflow_assets.languages.language import languages, suffixes
from dataflow_assets.manifests.file_reading import MOST_BYTES

_JSON = "of *.json only connectors are read; a manifest in JSON may be in a *.yaml"


def expand(paths: list[Path]) -> tuple[list[Path], list[Finding]]:
    """The files to read, each once, and a finding for every path that leads nowhere."""
    files: dict[Path, Path] = {}
    findings: list[Finding] = []
    for path in paths:
        if path.is_dir():
            manifests = sorted(_walk(path))
        elif path.exists():
            manifests = [path]
        else:
            manifests = []
            findings.append(Finding(str(path), 1, 1, "file", "no such file or folder"))
        for file in manifests:
            files.setdefault(_real(file), file)
    return list(files.values()), findings


def why_unchecked(path: Path) -> list[str]:
    """Why a folder that was named holds nothing to check: most likely the path is wrong."""
    if not path.is_dir() or any(_walk(path)):
        return []
    others = sorted(entry.name for entry in _entries(path) if entry.suffix == ".json")[:3]
    ignored = f" ({', '.join(others)}: {_JSON})" if others else ""
    *rest, last = (f"*{one}" for one in sorted(_suffixes()))
    kinds = f"{', '.join(rest)} or {last}"
    return [f"{path}: no {kinds} in this folder: nothing was checked{ignored}"]


def _walk(folder: Path, seen: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """Manifests below a folder. Hidden names are skipped: mounted ConfigMaps keep copies there."""
    real = _real(folder)
    if real in seen:
        return
    for entry in _entries(folder):
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            yield from _walk(entry, seen | {real})
        elif is_manifest(entry):
            yield entry


def _real(path: Path) -> Path:
    """Without links; `Path.resolve` raises an error where they go round in a circle."""
    return Path(os.path.realpath(path))


def is_manifest(path: Path) -> bool:
    """Returns whether a file in a folder of manifests is read."""
    return path.suffix in _suffixes() or (path.suffix == ".json" and _is_connector(path))


@cache
def _suffixes() -> frozenset[str]:
    return (suffixes() | {".yml"}) - {".json"}


def _is_connector(path: Path) -> bool:
    """Looks for a connector's class in a file of JSON: most are schemas and data."""
    with suppress(OSError):
        stat = path.stat()
        small = S_ISREG(stat.st_mode) and stat.st_size <= MOST_BYTES
        return small and _names_connector(str(path), stat.st_mtime_ns, stat.st_size, stat.st_ino)
    return False


@lru_cache(maxsize=4096)
def _names_connector(file: str, _modified: int, _size: int, _inode: int) -> bool:
    return _connector().search(Path(file).read_bytes()) is not None


@cache
def _connector() -> re.Pattern[bytes]:
    classes = (re.escape(name) for one in languages().values() for name in one.connector_classes)
    return re.compile(rf'"connector\.class"\s*:\s*"\s*({"|".join(classes)})\s*"'.encode())


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return [folder / "(unreadable).yaml"]


def beside(paths: list[Path], files: list[Path]) -> list[Path]:
    """The neighbours of files that were named one by one, where their Secrets may stand."""
    own = {_real(file) for file in files}
    folders = {path.parent for path in paths if path.is_file()}
    near = [entry for folder in sorted(folders) for entry in _entries(folder)]
    return [
        entry
        for entry in near
        if entry.suffix in _suffixes() and entry.is_file() and _real(entry) not in own
    ]
