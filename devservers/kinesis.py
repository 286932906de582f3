"""Kinesis as a local process: moto's, with the resharding of AWS. Tests start it."""

from __future__ import annotations

import sys
import urllib.request
from dataclasses import dataclass
from typing import Any, ClassVar

from typing_extensions import override

from dataflow_assets.spark.process import LOOPBACK, Server

# Moto's classes take the name of their service from the module, which must not be __main__.
_PROGRAM = "from devservers.kinesis_server import serve; serve()"


@dataclass(eq=False, kw_only=True)
class Kinesis(Server):
    """Streams in memory; nobody but `access_key` is let in."""

    name = "kinesis"
    port_names: ClassVar[tuple[str, ...]] = ("kinesis",)

    region: str = "us-east-1"
    access_key: ClassVar[str] = "AKIADATAFLOWTESTS000"
    secret_key: ClassVar[str] = "of-the-test-server-alone"  # noqa: S105 - opens nothing else

    @property
    def uri(self) -> str:
        """Its endpoint."""
        return f"http://{LOOPBACK}:{self.ports['kinesis']}"

    @override
    def endpoints(self) -> dict[str, str]:
        return {"uri": self.uri}

    @override
    def command(self) -> list[str]:
        port = str(self.ports["kinesis"])
        return [sys.executable, "-c", _PROGRAM, "-H", LOOPBACK, "-p", port]

    @override
    def ready(self) -> bool:
        with urllib.request.urlopen(f"{self.uri}/moto-api/data.json", timeout=2) as answer:  # noqa: S310 (ours)
            return bool(answer.status == 200)

    def client(self) -> Any:
        """A client of AWS's own library."""
        from botocore.session import get_session

        return get_session().create_client(
            "kinesis",
            region_name=self.region,
            endpoint_url=self.uri,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
        )
