"""Tables that are folders of a bucket, without a catalog: where they are, without network."""

from __future__ import annotations

import os
from typing import Any, ClassVar
from urllib.parse import urlsplit

from pydantic import SecretStr, field_validator
from typing_extensions import override

from dataflow_assets.connectors.iceberg.addresses import slug
from dataflow_assets.connectors.iceberg.connection import CatalogConnection
from dataflow_assets.contracts import Address
from dataflow_assets.sdk.conditional_put import Keys, ObjectStore
from dataflow_assets.sdk.local_folders import outside, within_root

S3, _DISK = "s3://", "file:///"
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


class BucketConnection(CatalogConnection):
    """The keys of a bucket, or of a folder of the disk. No manifest has them: languages do."""

    place: ClassVar[str] = "bucket and prefix"
    at: ClassVar[str] = "bucket"
    bucket: str
    """`s3://bucket/prefix` or `file:///folder`: tables are folders below it, by namespace."""
    session_token: SecretStr | None = None
    """Belongs to keys that expire."""

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

    @override
    def __getstate__(self) -> dict[Any, Any]:
        """Tasks have the keys of the driver's environment; without any, they find their own."""
        state = super().__getstate__()
        if (keys := self._keys) is None:
            return state
        token = SecretStr(keys.session) if keys.session else None
        resolved = {
            "access_key": SecretStr(keys.access),
            "secret_access_key": SecretStr(keys.secret),
            "session_token": token,
        }
        return state | {"__dict__": state["__dict__"] | resolved}

    @property
    def _keys(self) -> Keys | None:
        """The declared keys, else those of the environment; None: as AWS's own clients find them.

        A Spark server runs for longer than a driver, and need not have its environment.
        """
        if self.access_key and self.secret_access_key:
            token = self.session_token.get_secret_value() if self.session_token else None
            access = self.access_key.get_secret_value()
            return Keys(access, self.secret_access_key.get_secret_value(), token)
        access_key, secret, token = map(os.environ.get, _KEYS)
        return Keys(access_key, secret, token) if access_key and secret else None

    @property
    def store(self) -> ObjectStore:
        """The S3 store, with its keys in place."""
        keys = self._keys
        return ObjectStore(self.store_endpoint, self._region, self.s3_path_style_access, keys)

    def location(self, identifier: tuple[str, ...]) -> str:
        return "/".join((self.bucket, *identifier))

    @override
    def catalog_properties(self) -> dict[str, Any]:
        """PyIceberg's properties of the files; holds secrets."""
        properties = {"warehouse": self.bucket}
        if not self.on_s3:
            return properties
        if keys := self._keys:
            properties |= {"s3.access-key-id": keys.access, "s3.secret-access-key": keys.secret}
            properties |= {"s3.session-token": keys.session} if keys.session else {}
        return properties | self._file_properties()

    @override
    def _address(self, namespace: str, table: str) -> Address:
        parts = urlsplit(self.bucket)
        return Address("iceberg", slug(f"{parts.netloc} {parts.path}"), namespace, table)

    @override
    def spellings(self) -> tuple[str, ...]:
        return (self.bucket,)
