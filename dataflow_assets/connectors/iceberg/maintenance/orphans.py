"""Files that failed tasks and expired snapshots have left below a table's location.

Deleted is only what carries a name that we or PyIceberg give, is older than any run can be, and is
listed by no snapshot of any branch. Files are listed before the snapshots are: what is committed
meanwhile is seen there. Names hold a uuid, so that a file is known however its path is spelled.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from pyarrow import fs
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

THREADS = 8
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# The last form is PyIceberg's, of what it rewrites to take rows out of a table.
DATA = re.compile(rf"(?:[0-9a-f]{{8}}-\d+-.*|frame|errors|merged|00000-\d+)-{_UUID}\.parquet")
METADATA = re.compile(rf"(?:{_UUID}-m\d+|snap-\d+-\d+-{_UUID})\.avro")

Item = TypeVar("Item")


@dataclass(frozen=True)
class _File:
    path: str
    bytes: int


@dataclass(frozen=True)
class Swept:
    """What was deleted."""

    files: int = 0
    bytes: int = 0


def sweep(catalog: Catalog, table: Table, before: datetime) -> Swept:
    """Deletes files of before that time that nothing lists. Raises when a list cannot be read."""
    places = table.location_provider()
    data = dict(_old(table, places.data_path, DATA, before))
    metadata = dict(_old(table, places.metadata_path, METADATA, before))
    if not data and not metadata:
        return Swept()
    now = catalog.load_table(table.name())
    with ThreadPoolExecutor(THREADS) as pool:
        manifests = _manifests(now, pool)
        _drop(metadata, (snapshot.manifest_list for snapshot in now.metadata.snapshots))
        _drop(metadata, manifests)
        _drop_listed(data, now, manifests.values(), pool)
        waiting = [*data.values(), *metadata.values()]
        deleted = [file for file, gone in pool.map(lambda f: (f, _gone(now, f)), waiting) if gone]
    return Swept(len(deleted), sum(file.bytes for file in deleted))


def _old(
    table: Table, place: str, names: re.Pattern[str], before: datetime
) -> Iterator[tuple[str, _File]]:
    """Our files below a place that is the table's own, by name."""
    io = table.io
    inside = place.startswith(table.location().rstrip("/") + "/")
    if not inside or not isinstance(io, PyArrowFileIO):
        return
    scheme, host, path = io.parse_location(place, io.properties)
    selector = fs.FileSelector(path, recursive=True, allow_not_found=True)
    for info in io.fs_by_scheme(scheme, host).get_file_info(selector):
        known = info.is_file and info.mtime is not None and names.fullmatch(info.base_name)
        if known and info.mtime < before:
            yield info.base_name, _File(f"{place}{info.path[len(path) :]}", info.size)


def _manifests(table: Table, pool: ThreadPoolExecutor) -> dict[str, ManifestFile]:
    """Every manifest that a snapshot lists, those of the newest first."""
    newest = sorted(table.metadata.snapshots, key=lambda s: s.timestamp_ms, reverse=True)
    lists = pool.map(lambda snapshot: snapshot.manifests(table.io), newest)
    return {manifest.manifest_path: manifest for listed in lists for manifest in listed}


def _drop_listed(
    files: dict[str, _File],
    table: Table,
    manifests: Iterable[ManifestFile],
    pool: ThreadPoolExecutor,
) -> None:
    """Takes out what a manifest lists, also as deleted; reads no more of them than needed."""

    def paths(manifest: ManifestFile) -> list[str]:
        entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
        return [entry.data_file.file_path for entry in entries]

    for some in _chunks(list(manifests), 4 * THREADS):
        if not files:
            return
        for listed in pool.map(paths, some):
            _drop(files, listed)


def _chunks(items: list[Item], size: int) -> Iterator[list[Item]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _drop(files: dict[str, _File], paths: Iterable[str]) -> None:
    for path in paths:
        files.pop(path.rpartition("/")[2], None)


def _gone(table: Table, file: _File) -> bool:
    """One that cannot be deleted costs space only; the next time tries again."""
    try:
        table.io.delete(file.path)
    except OSError:
        return False
    return True
