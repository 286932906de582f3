"""The demo of `make demo-lake`: Avro over mTLS into Nessie, joined by Trino with PostgreSQL."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from typing_extensions import override

from dataflow_assets.spark.process import LOOPBACK, Server, ServerError
from devservers import nessie, trino
from devservers.apicurio import Apicurio
from devservers.demo.demo import OWNER, PASSWORD, Say, near
from devservers.demo.lake_shop import CUSTOMER, ORDER, Customers, coding, register
from devservers.demo.shop import Shop
from devservers.demo.shopkeeper import Sender
from devservers.demo.topics import TopicsDemo
from devservers.nessie import Nessie
from devservers.secure_kafka import PROTOCOLS, SecureKafka
from devservers.trino import Trino

TOPICS = {"orders": 3, "customers": 1}
ORDERS_PER_SECOND = 25.0  # each is sent about four times
TIERS_PER_SECOND = 0.5
BRANCH = "live"
SECRETS = "DATAFLOW_SECRETS"
KAFKA = {
    "kafka": 19092,
    "controller": 19093,
    **{name: 19094 + index for index, name in enumerate(PROTOCOLS)},
}
APICURIO = {"apicurio": 18085}
NESSIE = {"nessie": 19120, "management": 19121}
TRINO = {"http": 18088, "https": 18443}


class LakeDemo(TopicsDemo):
    """The manifests of `examples/demo-lake`."""

    name = "demo-lake"

    def __init__(self, folder: Path, offset: int, say: Say) -> None:
        super().__init__(folder, offset, say)
        self.secure = SecureKafka(folder / "kafka", ports=self.moved(KAFKA))
        self.kafka = self.secure
        self.apicurio = Apicurio(folder / "apicurio", ports=self.moved(APICURIO))
        store = self.seaweedfs
        self.nessie = Nessie(folder / "nessie", ports=self.moved(NESSIE), store=store)
        catalogs = {
            "lake": self.nessie.trino_catalog(BRANCH),
            "shop": {
                "connector.name": "postgresql",
                "connection-url": f"jdbc:postgresql://{LOOPBACK}:{self.postgresql.port}/{OWNER}",
                "connection-user": OWNER,
                "connection-password": PASSWORD,
            },
        }
        self.trino = Trino(
            folder / "trino",
            ports=self.moved(TRINO),
            store=store,
            database=self.postgresql,
            catalogs=catalogs,
        )

    @property
    @override
    def servers(self) -> list[Server]:
        return [*super().servers, self.apicurio, self.nessie, self.trino]

    @override
    def check(self) -> None:
        if missing := nessie.missing() or trino.missing():
            raise ServerError(f"the demo with the lake needs Nessie and Trino: {missing}")
        super().check()

    @override
    def open_shop(self, stack: ExitStack) -> None:
        self.make_topics(TOPICS)
        self._write_secrets()
        self._make_branch()
        orders = coding(register(self.apicurio.url, "orders", ORDER))
        customers = register(self.apicurio.url, "customers", CUSTOMER)
        for topic, stream, rate in (
            ("customers", lambda first: Customers(first, customers), TIERS_PER_SECOND),
            ("orders", partial(Shop, coding=orders), ORDERS_PER_SECOND),
        ):
            sender = Sender(self._broker(), topic, self._folder / f"next-{topic}", stream)
            sender.start(rate)
            stack.callback(sender.stop)
        self._say(f"the shop is open: some {4 * ORDERS_PER_SECOND:.0f} messages a second")

    @override
    def places(self) -> Iterator[tuple[str, str]]:
        yield from super().places()
        yield "Kafka (mTLS)", f"{self.secure.at('mtls')}, topics {', '.join(TOPICS)}"
        yield "certificates", near(self._certificates)
        yield "registry", self.apicurio.url
        yield "Nessie", f"{self.nessie.uri}, branch {BRANCH}"
        yield "Trino", f"{self.trino.uri}, catalogs lake (Nessie) and shop (PostgreSQL)"

    @override
    def variables(self) -> dict[str, str]:
        return {**super().variables(), SECRETS: str(self._secrets)}

    @override
    def status_command(self) -> str:
        return f"{SECRETS}={near(self._secrets)} {super().status_command()}"

    @property
    def _secrets(self) -> Path:
        return self._folder / "secrets"

    @property
    def _certificates(self) -> Path:
        """As Kubernetes mounts a Secret of the flows' namespace."""
        return self._secrets / "default" / "kafka-client"

    def _write_secrets(self) -> None:
        own = self.secure.client
        self._certificates.mkdir(parents=True, exist_ok=True)
        files = {"ca.crt": self.secure.authority.ca, "tls.crt": own.cert, "tls.key": own.key}
        for name, path in files.items():
            file = self._certificates / name
            file.touch(mode=0o600)
            file.write_text(path.read_text())

    def _broker(self) -> dict[str, str]:
        return {
            "bootstrap.servers": self.secure.at("mtls"),
            "security.protocol": "ssl",
            "ssl.ca.location": str(self._certificates / "ca.crt"),
            "ssl.certificate.location": str(self._certificates / "tls.crt"),
            "ssl.key.location": str(self._certificates / "tls.key"),
        }

    def _make_branch(self) -> None:
        """From `main`, unless it is there."""
        trees = f"{self.nessie.uri}/api/v2/trees"
        with urllib.request.urlopen(f"{trees}/main", timeout=30) as answer:  # noqa: S310 (ours)
            main = json.load(answer)["reference"]
        query = urllib.parse.urlencode({"name": BRANCH, "type": "BRANCH"})
        headers = {"Content-Type": "application/json"}
        made = urllib.request.Request(f"{trees}?{query}", json.dumps(main).encode(), headers)  # noqa: S310
        try:
            urllib.request.urlopen(made, timeout=30).close()  # noqa: S310 (ours)
        except urllib.error.HTTPError as error:
            if error.code != 409:  # it is there
                raise
