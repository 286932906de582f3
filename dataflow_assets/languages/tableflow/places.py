"""The places of a Tableflow file's tables: the bucket, and the location's catalog, if any."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from dataflow_assets.languages.common.keys import suggest
from dataflow_assets.languages.tableflow.catalogs import TableflowCatalog
from dataflow_assets.languages.tableflow.declared_sinks import (
    BucketSink,
    DeclaredSink,
    NessieTableSink,
    RestTableSink,
)
from dataflow_assets.sdk.local_folders import outside, within_root

NAMESPACE = "warpstream._tableflow"
"""Of the tables: the path below bucket and prefix, with dots."""
_PARAMETERS = ("region", "prefix")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX = re.compile(r"(?:[A-Za-z0-9_=-][A-Za-z0-9._=-]*/?)+")


@dataclass(frozen=True)
class Bucket:
    """The bucket and folder of tables."""

    url: str
    """Bucket and prefix, without a slash at the end."""
    region: str | None = None

    @classmethod
    def parse(cls, text: str) -> Bucket:
        parts = urlsplit(text)
        parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
        for name in parameters:
            if name not in _PARAMETERS:
                raise ValueError(f"has an unknown parameter; {suggest(name, _PARAMETERS)}")
        prefix = parameters.get("prefix", "").strip("/")
        if prefix and not _PREFIX.fullmatch(prefix):
            raise ValueError(
                "has a prefix that is no path: letters, digits, `.`, `_`, `=`, `-`, `/`"
            )
        region = parameters.get("region") or None
        if parts.scheme == "file":
            return cls(_join(_folder(parts.netloc, parts.path), prefix), region)
        if parts.scheme != "s3":
            raise ValueError(
                "must be s3://bucket or file:///folder; other stores: not supported yet"
            )
        if not _BUCKET.fullmatch(parts.netloc) or parts.path.strip("/"):
            raise ValueError("must be s3://bucket; a path in it goes into ?prefix=")
        return cls(_join(f"s3://{parts.netloc}", prefix), region)


def _folder(host: str, path: str) -> str:
    if host or os.path.normpath(path) != path.rstrip("/"):
        raise ValueError("must be file:///folder, an absolute path without `..`")
    if not within_root(path):
        raise ValueError(outside("its folder"))
    return f"file://{path.rstrip('/')}"


def _join(url: str, prefix: str) -> str:
    return f"{url}/{prefix}" if prefix else url


@dataclass(frozen=True)
class TableflowPlaced:
    """The folder of a file's tables, and the catalog that lists them, if any."""

    bucket: Bucket
    catalog: TableflowCatalog | None

    def sink(self, options: Mapping[str, Any]) -> DeclaredSink:
        if self.catalog is None:
            place = {"bucket": self.bucket.url, "s3_region": self.bucket.region}
            return BucketSink.model_validate({**place, "namespace": NAMESPACE, **options})
        sink_class = NessieTableSink if self.catalog.type == "nessie" else RestTableSink
        folder = "/".join((self.bucket.url, *NAMESPACE.split(".")))
        place = {"s3_region": self.bucket.region} if self.bucket.region else {}
        own = {"namespace": NAMESPACE, **place, **self.catalog.options, "tables_folder": folder}
        return sink_class.model_validate({**own, **options})
