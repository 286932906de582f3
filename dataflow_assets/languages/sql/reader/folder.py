"""The `.sql` files of a folder: an INSERT may name tables that another file of it declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from dataflow_assets.languages.common.reading import Reading
from dataflow_assets.languages.sql.reader.read import read, tables_of
from dataflow_assets.languages.sql.reader.tables import FlinkDeclared


@dataclass(frozen=True, eq=False)
class SqlFile:
    """One file, the same object as long as it is unchanged: what it comes to is kept by it."""

    file: str
    text: str

    @cached_property
    def folder(self) -> Path:
        """The folder without links; resolved once, as all files of a folder are compared."""
        return Path(self.file).resolve().parent


def read_file(own: SqlFile, every: Sequence[SqlFile]) -> Sequence[Reading]:
    """The readings of a file; `every` has those that lie beside it, among others."""
    beside = tuple(two for two in every if two is not own and two.folder == own.folder)
    return _readings(own, beside)


@lru_cache(maxsize=1024)
def _readings(own: SqlFile, beside: tuple[SqlFile, ...]) -> tuple[Reading, ...]:
    found: dict[str, list[tuple[str, FlinkDeclared | None]]] = {}
    for other in beside:
        for name, table in _tables(other).items():
            found.setdefault(name, []).append((Path(other.file).name, table))
    return tuple(read(own.text, own.file, found))


@lru_cache(maxsize=1024)
def _tables(one: SqlFile) -> Mapping[str, FlinkDeclared | None]:
    return tables_of(one.text, one.file)
