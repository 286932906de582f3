"""Options for a folder of files: where it is, and how its S3 store is reached."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator
from typing_extensions import override

from dataflow_assets.contracts import Address, Connector, Sink, SinkTraits, Source
from dataflow_assets.sdk.conditional_put import Keys, ObjectStore
from dataflow_assets.sdk.local_folders import outside, within_root
from dataflow_assets.secrets import Fills, SecretRef

Secret = SecretStr | None
Ref = SecretRef | None
Compression = Literal["none", "gzip", "zstd"]

_S3 = "s3://"


class FilesConnection(Connector):
    """The keys that source and sink share: the folder, and the store's address and credentials."""

    path: str
    """The folder: `s3://bucket/prefix`, or a path of the disk such as `/data/orders`, which must be
    below the folder DATAFLOW_FILES, and which every Spark worker must see under the same name."""
    s3_endpoint: str | None = Field(None, alias="s3Endpoint")
    """S3 endpoint of the files; AWS_S3_ENDPOINT by default."""
    s3_region: str | None = Field(None, alias="s3Region")
    """S3 region; AWS_REGION by default."""
    access_key: Secret = None
    """S3 access key; AWS_ACCESS_KEY_ID by default."""
    access_key_secret_ref: Annotated[Ref, Fills("access_key")] = None
    """Secret with the S3 access key."""
    secret_access_key: Secret = None
    """S3 secret key; AWS_SECRET_ACCESS_KEY by default."""
    secret_access_key_secret_ref: Annotated[Ref, Fills("secret_access_key")] = None
    """Secret with the S3 secret key."""
    s3_path_style_access: bool = Field(True, alias="s3PathStyleAccess")
    """True: `endpoint/bucket/key`; false: `bucket.endpoint/key`."""

    @field_validator("path")
    @classmethod
    def _folder(cls, value: str) -> str:
        parts = value.removeprefix(_S3).strip("/").split("/")
        is_path = all(part not in ("", ".", "..") for part in parts)
        if not is_path or not (value.startswith((_S3, "/")) and len(parts) > value.startswith(_S3)):
            raise ValueError("must be s3://bucket/prefix or an absolute path such as /data/orders")
        if not value.startswith(_S3) and not within_root(value):
            raise ValueError(outside("the folder"))
        return value.rstrip("/")

    @override
    def broken_rules(self) -> Iterator[str]:
        yield from super().broken_rules()
        keys = self.access_key or self.access_key_secret_ref
        secrets = self.secret_access_key or self.secret_access_key_secret_ref
        if bool(keys) != bool(secrets):
            yield "accessKey and secretAccessKey belong together: set both or none"

    def __getstate__(self) -> dict[Any, Any]:
        """Tasks use the store that the driver's environment names: theirs is another one."""
        state = super().__getstate__()
        resolved = {"s3_endpoint": self.endpoint, "s3_region": self.region}
        return state | {"__dict__": state["__dict__"] | resolved}

    @property
    def on_s3(self) -> bool:
        """False for a folder of the disk."""
        return self.path.startswith(_S3)

    @property
    def root(self) -> str:
        """Bucket and prefix, or the path of the disk."""
        return self.path.removeprefix(_S3)

    @property
    def endpoint(self) -> str | None:
        """The endpoint as declared, else as the environment says; None for that of AWS."""
        return self.s3_endpoint or os.environ.get("AWS_S3_ENDPOINT")

    @property
    def region(self) -> str | None:
        """The region as declared, else as the environment says."""
        return self.s3_region or os.environ.get("AWS_REGION")

    @property
    def store(self) -> ObjectStore:
        """The S3 store, with its keys in place."""
        keys = None
        if self.access_key and self.secret_access_key:
            keys = Keys(
                self.access_key.get_secret_value(), self.secret_access_key.get_secret_value()
            )
        return ObjectStore(self.endpoint, self.region, self.s3_path_style_access, keys)

    def address(self) -> Address:
        """files, the store's host or `disk`, the bucket, the folder."""
        if not self.on_s3:
            return Address("files", "disk", None, _with_dots(self.root.strip("/")))
        bucket, _, prefix = self.root.partition("/")
        host = urlsplit(self.s3_endpoint or "").netloc.rpartition("@")[2]
        connection = host.replace(":", "-").replace(".", "-") or "s3"
        return Address("files", connection, bucket, _with_dots(prefix))

    def spellings(self) -> tuple[str | SecretRef, ...]:
        """The store's endpoint, or the whole path where there is none."""
        return (self.s3_endpoint or self.path,)


def _with_dots(path: str) -> str:
    """A path with dots between its parts; a dot inside a part is none of those."""
    return path.replace("%", "%25").replace(".", "%2E").replace("/", ".")


class FilesSourceOptions(FilesConnection, Source):
    """Which files are read, and how."""

    glob: str = "*"
    """Only files whose path below the folder matches; `*` stands for any text, `/` included."""
    parallel_reads: int = Field(4, ge=1, le=64)
    """How many parts are read at the same time."""
    min_age_seconds: int = Field(0, ge=0)
    """Files changed less than so many seconds ago are left for later: for writers that do not put
    a file in its place at once."""
    poll_interval: int = Field(10, ge=1)
    """The shortest time between two looks at the folder, in seconds."""


class FilesSinkOptions(FilesConnection, Sink):
    """Options for writing files."""

    compression: Compression = "none"
    """How files are compressed; their names end in `.jsonl`, `.jsonl.gz` or `.jsonl.zst`."""
    target_file_size_bytes: int = Field(128 * 1024 * 1024, ge=1024)
    """Bytes of lines, before compression, after which a file ends and the next one begins."""

    @property
    @override
    def traits(self) -> SinkTraits:
        store = (self.s3_endpoint or "s3") if self.on_s3 else "disk"
        return replace(super().traits, folder=(store, *self.root.strip("/").split("/")))
