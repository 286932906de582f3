"""Our package as it is now, for Spark's workers: they never meet edited code with old workers."""

from __future__ import annotations

import hashlib
import os
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

PACKAGE = Path(__file__).parent.parent
_by_value: dict[str, ModuleType] = {}


def ship_by_value(module: ModuleType) -> None:
    """Lets functions of a user's module travel to workers, which cannot import it by name."""
    _by_value[module.__name__] = module


def shipped_by_value() -> Iterable[ModuleType]:
    """The modules that travel with the functions of them."""
    return _by_value.values()


def package() -> Path:
    """Our package as an archive, named by its content; made once per content."""
    files = sorted(path for path in PACKAGE.rglob("*") if path.suffix in {".py", ".typed"})
    digest = hashlib.sha256()
    for path in files:
        digest.update(str(path.relative_to(PACKAGE)).encode() + b"\0" + path.read_bytes())
    name = f"dataflow-package-{os.getuid()}-{digest.hexdigest()[:16]}"
    folder = Path(tempfile.gettempdir()) / name
    archive = folder / "dataflow_assets.zip"
    if not archive.exists():
        folder.mkdir(mode=0o700, exist_ok=True)
        _zip(files, archive)
    return archive


def _zip(files: list[Path], archive: Path) -> None:
    scratch = archive.with_name(f".{os.getpid()}.zip")
    with zipfile.ZipFile(scratch, "w", zipfile.ZIP_STORED) as target:
        for path in files:
            target.write(path, path.relative_to(PACKAGE.parent))
    scratch.replace(archive)
