"""Files that failed tasks and expired snapshots have left below a table's location.

Deleted is only what carries a name that we or PyIceberg give, is older than any run can be, and is
listed by no snapshot of any branch. Files are listed before the snapshots are: what is committed
meanwhile is seen there. Names hold a uuid, so that a file is known however its path is spelled.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from pyarrow import fs
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

THREADS = 8
UNLISTED = "dataflow-unlisted.json"
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
    """The files that were deleted."""

    files: int = 0
    bytes: int = 0


def sweep(catalog: Catalog, table: Table, before: datetime) -> Swept:
    """Deletes files of before that time that nothing lists. Raises when a list cannot be read."""
    return delete(table, unlisted_files(catalog, table, before).values())


def sweep_later(catalog: Catalog, table: Table, now: datetime, grace: timedelta) -> Swept:
    """Deletes files that are older than `grace`, and that nothing has listed for so long.

    When a file was first seen unlisted is kept in a file beside the table's metadata: a snapshot
    that has expired can be read for so long. Losing that file only delays.

    Raises:
        OSError: a list cannot be read; nothing was deleted.
    """
    unlisted = unlisted_files(catalog, table, now - grace)
    seen = _first_seen(table)
    since = {name: seen.get(name, now) for name in unlisted}
    done = delete(table, [file for name, file in unlisted.items() if now - since[name] >= grace])
    left = {name: at.isoformat() for name, at in since.items() if now - at < grace}
    if left or seen:
        with table.io.new_output(_place(table)).create(overwrite=True) as stream:
            stream.write(json.dumps(left).encode())
    return done


def _place(table: Table) -> str:
    return table.location_provider().new_metadata_location(UNLISTED)


def _first_seen(table: Table) -> dict[str, datetime]:
    try:
        with table.io.new_input(_place(table)).open() as stream:
            document = json.loads(stream.read())
    except (FileNotFoundError, ValueError):
        return {}
    return {name: datetime.fromisoformat(at) for name, at in document.items()}


def unlisted_files(catalog: Catalog, table: Table, before: datetime) -> dict[str, _File]:
    """The files of before that time that no snapshot lists, by name."""
    places = table.location_provider()
    data = dict(_old(table, places.data_path, DATA, before))
    metadata = dict(_old(table, places.metadata_path, METADATA, before))
    if not data and not metadata:
        return {}
    now = catalog.load_table(table.name())
    with ThreadPoolExecutor(THREADS) as pool:
        manifests = _manifests(now, pool)
        _drop(metadata, (snapshot.manifest_list for snapshot in now.metadata.snapshots))
        _drop(metadata, manifests)
        _drop_listed(data, now, manifests.values(), pool)
    return data | metadata


def delete(table: Table, files: Iterable[_File]) -> Swept:
    with ThreadPoolExecutor(THREADS) as pool:
        deleted = [file for file, gone in pool.map(lambda f: (f, _delete(table, f)), files) if gone]
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
        is_candidate = info.is_file and info.mtime is not None and names.fullmatch(info.base_name)
        if is_candidate and info.mtime < before:
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


def _delete(table: Table, file: _File) -> bool:
    """One that cannot be deleted costs space only; the next time tries again."""
    try:
        table.io.delete(file.path)
    except OSError:
        return False
    return True
