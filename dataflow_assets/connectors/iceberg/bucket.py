"""Tables that are folders of a bucket, without a catalog: where they are, without network."""

from __future__ import annotations

from typing import Any, ClassVar
from urllib.parse import urlsplit

from pydantic import field_validator
from typing_extensions import override

from dataflow_assets.connectors.iceberg.connection import CatalogConnection, slug
from dataflow_assets.contracts import Address
from dataflow_assets.sdk.conditional_put import Keys, ObjectStore
from dataflow_assets.sdk.local_folders import outside, within_root

S3, _DISK = "s3://", "file:///"


class BucketConnection(CatalogConnection):
    """The keys of a bucket, or of a folder of the disk. No manifest has them: dialects do."""

    place: ClassVar[str] = "bucket and prefix"
    bucket: str
    """`s3://bucket/prefix` or `file:///folder`: tables are folders below it, by namespace."""

    @field_validator("bucket")
    @classmethod
    def _reachable(cls, value: str) -> str:
        path = value.removeprefix(_DISK.rstrip("/"))
        if value.startswith(_DISK) and not within_root(path):
            raise ValueError(outside(path))
        return value.rstrip("/")

    @property
    @override
    def catalog(self) -> str:
        return self.bucket

    @property
    def on_s3(self) -> bool:
        """False for a folder of the disk."""
        return self.bucket.startswith(S3)

    @property
    def store(self) -> ObjectStore:
        """The S3 store, with its keys in place."""
        keys = None
        if self.access_key and self.secret_access_key:
            keys = Keys(
                self.access_key.get_secret_value(), self.secret_access_key.get_secret_value()
            )
        return ObjectStore(self._endpoint, self._region, self.s3_path_style_access, keys)

    def location(self, identifier: tuple[str, ...]) -> str:
        """The folder of a table."""
        return "/".join((self.bucket, *identifier))

    @override
    def catalog_properties(self) -> dict[str, Any]:
        """PyIceberg's properties of the files; holds secrets."""
        return {"warehouse": self.bucket} | (self._file_properties() if self.on_s3 else {})

    @override
    def address(self) -> Address:
        """iceberg, a slug of bucket and prefix, namespace, table."""
        parts = urlsplit(self.bucket)
        return Address("iceberg", slug(f"{parts.netloc} {parts.path}"), self.namespace, self.table)

    @override
    def spellings(self) -> tuple[str, ...]:
        """The bucket with its prefix."""
        return (self.bucket,)
