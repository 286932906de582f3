"""A file of Tableflow that runs for an hour while it is edited: `make soak-tableflow`.

Three tables over two clusters, one reached by a client certificate, the other one by a password
over TLS. One driver reads all of them; every minute it is stopped or killed, a schema of the file
is migrated, and the driver is started again. At the end each record is in its table exactly once,
with its values, and the tables are small.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import fastavro
import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, untyped
    AdminClient,
    NewTopic,
)
from pyiceberg.table import StaticTable

import devservers
from devservers.secure_kafka import USERS
from tests import ROOT
from tests.connectors.files import driver
from tests.e2e.flows import Command
from tests.own_servers import own_servers
from tests.stress.fuzz import commit
from tests.stress.soak import Every

RESULT = ROOT / "docs/evidence/soak-tableflow.md"
EACH = 25  # records of a topic in a tick
MOST_EXTRA = 12  # columns that are added to a table
PAGE = """# Soak of a Tableflow file

{date}, commit {head}, by `make soak-tableflow`: three tables over two clusters (mTLS, and
SCRAM-SHA-512 over TLS) into S3 for {minutes:.0f} minutes on {cores} cores. {records} records were
sent. The driver was started {starts} times, after every second end by a kill, and {migrations}
migrations of the file were made before a start. At the end each record was in its table exactly
once, with its values.

| table | rows | files | commits | schemas | snapshots |
|---|---|---|---|---|---|
{tables}

The driver held {first:.0f} MB in the first fifth of the time, and {last:.0f} MB in the last one
(medians: it is started again all the time).
"""


@dataclass
class Table:
    """One table of the file: what is sent, and how the file has it by now."""

    cluster: str
    topic: str
    fields: list[dict[str, Any]]
    source_format: str = "json"
    scheme: str = "unpartitioned"
    sent: int = 0
    extra: int = 0

    @property
    def name(self) -> str:
        return f"{self.cluster}+{self.topic}"

    def row(self, number: int) -> dict[str, Any]:
        """A record, with values for all columns that there will ever be."""
        row = {"id": number, "amount": number % 1000, "ratio": number / 4, "name": f"näme {number}"}
        if self.source_format == "json":
            row |= {f"extra_{at}": f"{at} of {number}" for at in range(MOST_EXTRA)}
        return row

    def body(self, number: int) -> bytes:
        """As it is sent; Avro with the head of a registry."""
        row = self.row(number)
        if self.source_format == "json":
            return json.dumps(row, ensure_ascii=False).encode()
        out = io.BytesIO(b"\0\0\0\0\7")
        out.seek(5)
        fastavro.schemaless_writer(out, _AVRO, row)
        return out.getvalue()

    def declared(self) -> dict[str, Any]:
        """Its part of the file."""
        return {
            "source_cluster_name": self.cluster,
            "source_topic": self.topic,
            "source_format": self.source_format,
            "schema_mode": "inline",
            "partitioning_scheme": self.scheme,
            "schema": {"fields": self.fields},
        }

    def migrate(self) -> bool:
        """The next change that Tableflow allows; False where there is none left."""
        for one in self.fields:
            if one["type"] == "int":
                one["type"] = "long"
                return True
        if self.source_format == "avro":
            return False  # any other change is one of the producer's schema as well
        for one in self.fields:
            if one["name"] != "id" and not one.get("optional"):
                one["optional"] = True
                return True
        if self.extra == MOST_EXTRA:
            return False
        name, number = f"extra_{self.extra}", 100 + self.extra
        self.fields.append({"name": name, "type": "string", "id": number, "optional": True})
        self.extra += 1
        return True

    def wrong(self, rows: Sequence[dict[str, Any]]) -> Iterator[str]:
        """Rows that are missing, doubled or different; late columns may be null."""
        seen: defaultdict[int, int] = defaultdict(int)
        for row in rows:
            seen[row["id"]] += 1
            wanted = self.row(row["id"])
            for key, value in row.items():
                late = key.startswith("extra_") and value is None
                if not (late or key == "_record_timestamp" or value == wanted[key]):
                    yield f"{self.name}: {key} of {row['id']} is {value!r}"
        yield from (f"{self.name}: {n} is missing" for n in range(self.sent) if n not in seen)
        yield from (f"{self.name}: {n} is stored {c} times" for n, c in seen.items() if c > 1)


def _fields() -> list[dict[str, Any]]:
    return [
        {"name": "id", "type": "int", "id": 1},
        {"name": "amount", "type": "int", "id": 2},
        {"name": "ratio", "type": "double", "id": 3},
        {"name": "name", "type": "string", "id": 4},
    ]


_AVRO = fastavro.parse_schema(
    {
        "type": "record",
        "name": "row",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "amount", "type": "long"},
            {"name": "ratio", "type": "double"},
            {"name": "name", "type": "string"},
        ],
    }
)


@dataclass
class Soak:
    """Two clusters, a bucket, the file, and the driver that reads it."""

    clusters: dict[str, devservers.SecureKafka]
    store: devservers.SeaweedFS
    folder: Path
    command: Command
    migrations: int = 0
    starts: int = 0
    megabytes: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        _, bucket = driver.bucket(self.store)
        self.bucket = f"s3://{bucket}"
        self.tables = [
            Table("certified", "orders", _fields()),
            Table("certified", "clicks", _fields(), scheme="hour"),
            Table("guarded", "invoices", _fields(), source_format="avro"),
        ]
        self._producers = {
            name: Producer({"bootstrap.servers": one.bootstrap, "log_level": 0})
            for name, one in self.clusters.items()
        }
        for table in self.tables:
            admin = AdminClient({"bootstrap.servers": self.clusters[table.cluster].bootstrap})
            admin.create_topics([NewTopic(table.topic, 3)])[table.topic].result(30)
        self.file, self._log = self.folder / "tableflow.yaml", self.folder / "driver.log"
        self._environment()
        self._write()
        self._start()

    def run(self, seconds: float, every: float) -> None:
        """Records all the time; a stop or kill with a migration every so many seconds."""
        began = time.monotonic()
        restart, look = Every(every, self._migrate), Every(seconds / 100, self._look)
        while time.monotonic() - began < seconds:
            self._send()
            restart()
            look()
            time.sleep(1.0)
        self._end(signal.SIGTERM)

    def wrong(self) -> list[str]:
        """What is wrong after everything was read to its end."""
        process = self.command.spawn("run", str(self.file))
        out, err = process.communicate(timeout=600)
        assert process.returncode == 0, out + err
        return [
            said
            for table in self.tables
            for said in table.wrong(self.stored(table).scan().to_arrow().to_pylist())
        ]

    def stored(self, table: Table) -> StaticTable:
        """As a reader by path finds it."""
        place = f"{self.bucket}/warpstream/_tableflow/{table.name}"
        return StaticTable.from_metadata(place, self._properties)

    @property
    def _properties(self) -> dict[str, str]:
        return {
            "s3.endpoint": self.store.s3_endpoint,
            "s3.region": self.store.region,
            "s3.access-key-id": self.store.access_key,
            "s3.secret-access-key": self.store.secret_key,
        }

    def _environment(self) -> None:
        certified = self.clusters["certified"]
        os.environ |= {
            "AWS_S3_ENDPOINT": self.store.s3_endpoint,
            "AWS_REGION": self.store.region,
            "AWS_ACCESS_KEY_ID": self.store.access_key,
            "AWS_SECRET_ACCESS_KEY": self.store.secret_key,
            "TABLEFLOW_CERTIFICATE": str(certified.client.cert),
            "TABLEFLOW_KEY": str(certified.client.key),
            "TABLEFLOW_CA": str(certified.authority.ca),
            "TABLEFLOW_GUARDED_CA": str(self.clusters["guarded"].authority.ca),
            "TABLEFLOW_USER": "flow",
            "TABLEFLOW_PASSWORD": USERS["flow"],
        }

    def _write(self) -> None:
        certified = {
            "use_tls": True,
            "mtls_client_cert_env": "CERTIFICATE",
            "mtls_client_key_env": "KEY",
            "mtls_server_ca_cert_env": "CA",
        }
        guarded = {
            "use_tls": True,
            "sasl_username_env": "USER",
            "sasl_password_env": "PASSWORD",
            "sasl_mechanism": "scram-512",
            "mtls_server_ca_cert_env": "GUARDED_CA",
        }
        document = {
            "source_clusters": [
                self._cluster("certified", "mtls", certified),
                self._cluster("guarded", "sasltls", guarded),
            ],
            "tables": [table.declared() for table in self.tables],
            "destination_bucket_url": self.bucket,
        }
        self.file.write_text(json.dumps(document, indent=1), encoding="utf-8")

    def _cluster(self, name: str, listener: str, credentials: dict[str, Any]) -> dict[str, Any]:
        host, _, port = self.clusters[name].at(listener).rpartition(":")
        brokers = [{"hostname": host, "port": int(port)}]
        return {"name": name, "bootstrap_brokers": brokers, "credentials": credentials}

    def _send(self) -> None:
        for table in self.tables:
            producer = self._producers[table.cluster]
            for number in range(table.sent, table.sent + EACH):
                producer.produce(table.topic, table.body(number), partition=number % 3)
            assert producer.flush(30) == 0
            table.sent += EACH

    def _migrate(self) -> None:
        self._end(signal.SIGKILL if self.starts % 2 else signal.SIGTERM)
        start = self.starts % len(self.tables)
        for table in (*self.tables[start:], *self.tables[:start]):
            if table.migrate():
                self.migrations += 1
                break
        self._write()
        self._start()

    def _look(self) -> None:
        self.megabytes.append(psutil.Process(self._process.pid).memory_info().rss / (1 << 20))

    def _start(self) -> None:
        self.starts += 1
        with self._log.open("a") as log:
            self._process = self.command.spawn("run", str(self.file), "--for", "36000", log=log)

    def _end(self, number: signal.Signals) -> None:
        if self._process.poll() is not None:
            raise AssertionError(f"the driver ended: {self._log.read_text()[-3_000:]}")
        self._process.send_signal(number)
        self._process.wait(120)


def page(soak: Soak, minutes: float, head: str) -> str:
    """For docs/evidence/soak-tableflow.md."""
    fifth = len(soak.megabytes) // 5
    return PAGE.format(
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        head=head,
        minutes=minutes,
        cores=psutil.cpu_count(),
        records=sum(table.sent for table in soak.tables),
        starts=soak.starts,
        migrations=soak.migrations,
        tables="\n".join(_line(table, soak.stored(table)) for table in soak.tables),
        first=median(soak.megabytes[:fifth]),
        last=median(soak.megabytes[-fifth:]),
    )


def _line(table: Table, stored: StaticTable) -> str:
    metadata = stored.metadata
    files = len(list(stored.scan().plan_files()))
    number = metadata.next_sequence_number() - 1
    cells = [table.name, table.sent, files, number, len(metadata.schemas), len(metadata.snapshots)]
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    """Runs, and writes the result down when every record is where it must be."""
    parser = argparse.ArgumentParser(prog="python -m tests.stress.soak_tableflow")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--restart-every", type=float, default=60, help="seconds")
    parser.add_argument("--no-result", dest="write", action="store_false", help="do not write it")
    given = parser.parse_args()
    head = commit()
    with own_servers("dataflow-soak-tableflow-") as (own, folder):
        clusters = {
            name: own.enter_context(devservers.SecureKafka(folder / name))
            for name in ("certified", "guarded")
        }
        store = own.getfixturevalue("seaweedfs")
        command = Command(own.getfixturevalue("spark_server").remote)
        soak = Soak(clusters, store, folder, command)
        soak.run(given.minutes * 60, given.restart_every)
        wrong = soak.wrong()
        found = page(soak, given.minutes, head)
        sys.stdout.write(found)
    assert not wrong, f"{len(wrong)} things are wrong: {wrong[:5]}"
    if given.write:
        RESULT.write_text(found, encoding="utf-8")


if __name__ == "__main__":
    main()
