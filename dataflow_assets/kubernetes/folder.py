"""The folder with the manifests of all objects, which a location reads."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from dataflow_assets.kubernetes.crds import Resource
from dataflow_assets.kubernetes.objects import CustomResource, suffix

COMPLETE = ".complete"
"""The file that says that all objects have been written once: others may begin to read."""


def mirror_objects(
    folder: Path, resource: Resource, namespace: str, objects: Iterable[CustomResource]
) -> Iterator[str]:
    """Makes the files of a kind and namespace those of these objects; yields what has changed.

    A file is replaced as a whole, and left alone where it says the same: several processes may do
    this at once. Raises OSError where the folder cannot be written.
    """
    current = {one.file(folder): one for one in objects if not one.is_deleted}
    for file, one in current.items():
        if replace_text(file, one.manifest):
            yield f"{resource.kind} {namespace}/{one.name}: its manifest is in {file}"
    for file in sorted((folder / namespace).glob(f"[!.]*{suffix(resource)}")):
        if file not in current:
            file.unlink(missing_ok=True)
            name = file.name.removesuffix(suffix(resource))
            yield f"{resource.kind} {namespace}/{name}: it was deleted; {file} is removed"


def replace_text(file: Path, text: str) -> bool:
    """Writes a file in one step; False where it says the same already."""
    if file.is_file() and file.read_text(encoding="utf-8") == text:
        return False
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    beside.write_text(text, encoding="utf-8")
    beside.replace(file)
    return True
