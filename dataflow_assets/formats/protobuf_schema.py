"""Protobuf schemas as text, compiled by protoc.

A schema may import what Confluent's clients know without a reference in the registry:
`google/protobuf`, `google/type` and Confluent's own files, which are in `protobuf_files`. A
reference of the registry goes before these.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from functools import lru_cache
from importlib.metadata import distribution
from importlib.resources import files
from pathlib import Path

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import FileDescriptor

from dataflow_assets.formats.protobuf_files import CONFLUENT

SECONDS = 60.0
_MAIN = "dataflow_schema.proto"
_NAME = re.compile(r"(?:[A-Za-z0-9_-][A-Za-z0-9._-]*/)*[A-Za-z0-9_-][A-Za-z0-9._-]*\.proto")


def compile_schema(text: str, references: tuple[tuple[str, str], ...] = ()) -> FileDescriptor:
    """The file of a schema.

    Called inside tasks, once per process for each schema.

    Args:
        text: the schema.
        references: names and texts of the files that it imports.

    Raises:
        ValueError with the line of a mistake.
    """
    descriptors = _compile(text, references)
    if isinstance(descriptors, str):
        raise ValueError(descriptors)  # noqa: TRY004 - what protoc has said
    return descriptors


@lru_cache(maxsize=256)
def _compile(text: str, references: tuple[tuple[str, str], ...]) -> FileDescriptor | str:
    """The file, or what is wrong with it: each message would start protoc again."""
    try:
        return _build(text, references)
    except ValueError as error:
        return str(error)


def _build(text: str, references: tuple[tuple[str, str], ...]) -> FileDescriptor:
    with tempfile.TemporaryDirectory(prefix="dataflow-proto-") as name:
        folder = Path(name)
        for path, content in {**CONFLUENT, **dict(references), _MAIN: text}.items():
            _write(folder, path, content)
        descriptors = _descriptors(folder)
    pool = descriptor_pool.DescriptorPool()
    for file in descriptors.file:
        pool.Add(file)
    return pool.FindFileByName(_MAIN)


def _write(folder: Path, path: str, text: str) -> None:
    """No name leads out of the folder, and none is both a file and the folder of another one."""
    if _NAME.fullmatch(path) is None:
        raise _impossible(path)
    try:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, "utf-8")
    except (FileExistsError, IsADirectoryError, NotADirectoryError):
        raise _impossible(path) from None


def _impossible(path: str) -> ValueError:
    return ValueError(f"it refers to a file of the name {path[:80]!r}, which protoc cannot have")


def _descriptors(folder: Path) -> descriptor_pb2.FileDescriptorSet:
    """In a process of its own: what protoc has to say, it says there."""
    target = folder / "descriptors.bin"
    roots = (f"-I{root}" for root in (folder, *_known_folders()))
    command = [sys.executable, "-m", "grpc_tools.protoc", *roots]
    options = ["--include_imports", f"--descriptor_set_out={target}", _MAIN]
    try:
        done = subprocess.run(
            [*command, *options], capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise ValueError("protoc does not come to an end") from None
    if done.returncode != 0:
        lines = done.stderr.replace(f"{folder}/", "").replace(f"{_MAIN}:", "line ").splitlines()
        raise ValueError(f"no Protobuf schema: {_explain((lines or ['unknown'])[0][:300])}")
    return descriptor_pb2.FileDescriptorSet.FromString(target.read_bytes())


def _known_folders() -> tuple[str, ...]:
    return (
        str(files("grpc_tools") / "_proto"),  # google/protobuf
        f"google={distribution('googleapis-common-protos').locate_file('google')}",  # google/type
    )


def _explain(line: str) -> str:
    missing = line.endswith("File not found.")
    return f"{line} The schema must have a reference of this name" if missing else line
