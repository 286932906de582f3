"""Folders for tests: a bucket of the test store, and a folder of the disk."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

import devservers
from dataflow_assets.connectors.files import FilesSink
from dataflow_assets.connectors.files.client import Folder, is_hidden, visible

Config = dict[str, Any]


def bucket(server: devservers.SeaweedFS) -> tuple[fs.S3FileSystem, str]:
    """A fresh bucket, and the store as its owner sees it."""
    store = fs.S3FileSystem(
        access_key=server.access_key,
        secret_key=server.secret_key,
        region=server.region,
        endpoint_override=server.s3_endpoint,
        allow_bucket_creation=True,
        allow_bucket_deletion=True,
    )
    name = f"files-{uuid.uuid4().hex[:10]}"
    store.create_dir(name)
    return store, name


def on_s3(server: devservers.SeaweedFS, path: str) -> Config:
    return {
        "path": f"s3://{path}",
        "s3Endpoint": server.s3_endpoint,
        "s3Region": server.region,
        "accessKey": server.access_key,
        "secretAccessKey": server.secret_key,
    }


def on_disk(path: Path) -> Config:
    return {"path": str(path)}


def folder(config: Config) -> Folder:
    return Folder(FilesSink.model_validate(config))


def lines(found: Folder, *, rejected: bool = False) -> list[list[dict[str, Any]]]:
    """The records of each file, in the order of the files' names."""
    files = found.files("_rejected") if rejected else visible(found.files())
    return [rows(found, file.name) for file in files]


def rows(found: Folder, name: str) -> list[dict[str, Any]]:
    """The records of a file."""
    return [json.loads(line) for line in content(found, name).splitlines()]


def content(found: Folder, name: str) -> bytes:
    compression = {"gz": "gzip", "zst": "zstd"}.get(name.rpartition(".")[2])
    data = found.read(name)
    if compression is None:
        return data
    text: bytes = pa.CompressedInputStream(pa.BufferReader(data), compression).read()
    return text


__all__ = [
    "Folder",
    "bucket",
    "content",
    "folder",
    "is_hidden",
    "lines",
    "on_disk",
    "on_s3",
    "rows",
    "visible",
]
