"""Our package as it is now, for Spark's workers: they never meet edited code with old workers."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
import zipfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from dataflow_assets.errors import PermanentError

PACKAGE = Path(__file__).parent.parent
_by_value: dict[str, ModuleType] = {}


def ship_by_value(module: ModuleType) -> None:
    """Lets functions of a user's module travel to workers, which cannot import it by name."""
    _by_value[module.__name__] = module


def shipped_by_value() -> Iterable[ModuleType]:
    """The modules that travel with the functions of them."""
    return _by_value.values()


def package() -> Path:
    """Our package as an archive, named by its content; made once per content.

    The workers run what is in it: PermanentError where anybody else may have put it there.
    """
    files = sorted(path for path in PACKAGE.rglob("*") if path.suffix in {".py", ".typed"})
    digest = hashlib.sha256()
    for path in files:
        digest.update(str(path.relative_to(PACKAGE)).encode() + b"\0" + path.read_bytes())
    name = f"dataflow-package-{os.getuid()}-{digest.hexdigest()[:16]}"
    folder = Path(tempfile.gettempdir()) / name
    archive = folder / "dataflow_assets.zip"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    _refuse_foreign(folder)
    if not archive.exists():
        _zip(files, archive)
    return archive


def _refuse_foreign(folder: Path) -> None:
    """The name is known to everybody, and the temporary folder is everybody's."""
    status = folder.lstat()
    ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    if not ours or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermanentError(
            f"{folder} holds the code that Spark's workers run, so it must be a folder of user "
            f"{os.getuid()} that nobody else may write; it is {stat.filemode(status.st_mode)} of "
            f"user {status.st_uid}: remove it, or set TMPDIR to a folder of your own"
        )


def _zip(files: list[Path], archive: Path) -> None:
    scratch = archive.with_name(f".{os.getpid()}.zip")
    with zipfile.ZipFile(scratch, "w", zipfile.ZIP_STORED) as target:
        for path in files:
            target.write(path, path.relative_to(PACKAGE.parent))
    scratch.replace(archive)
