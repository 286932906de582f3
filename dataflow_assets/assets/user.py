"""Python files beside the manifests: users' own assets, loaded one by one.

A file that cannot be imported becomes findings, as a broken manifest does; the others go on.
"""

import importlib.util
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import dagster as dg

from dataflow_assets.errors import Finding
from dataflow_assets.flow import mangle
from dataflow_assets.spark.package import ship_by_value

PREFIX = "dataflow_user_"


@dataclass(frozen=True)
class UserFile:
    """One Python file: its definitions, or what is wrong with it."""

    path: Path
    definitions: dg.Definitions = dg.Definitions()
    finding: Finding | None = None


def files(folders: Iterable[Path]) -> list[Path]:
    """Python files directly in these folders; names with a leading `_` or `.` are skipped."""
    return [
        path
        for folder in folders
        if folder.is_dir()
        for path in sorted(folder.glob("*.py"))
        if not path.name.startswith(("_", "."))
    ]


def load(path: Path) -> UserFile:
    """Imports one file. Its module-level assets and asset checks count, and its `defs`."""
    try:
        module = _import(path)
        return UserFile(path, _definitions(module))
    except Exception as error:  # noqa: BLE001 - a user's file may raise anything
        return UserFile(path, finding=finding(path, error))


def finding(path: Path, error: Exception) -> Finding:
    """Returns what is wrong with a file, at the line of it where that shows."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename) == path]
    line = getattr(error, "lineno", None) if isinstance(error, SyntaxError) else None
    where = line or (lines[-1] if lines else None) or 1
    text = str(error).partition("\n")[0][:300]
    return Finding(str(path), where, 1, path.stem, f"{type(error).__name__}: {text}")


def _import(path: Path) -> ModuleType:
    name = PREFIX + mangle(path.stem)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    ship_by_value(module)
    return module


def _definitions(module: ModuleType) -> dg.Definitions:
    own = getattr(module, "defs", None)
    if isinstance(own, dg.Definitions):
        return own
    return dg.Definitions(
        assets=dg.load_assets_from_modules([module]),
        asset_checks=dg.load_asset_checks_from_modules([module]),
    )
