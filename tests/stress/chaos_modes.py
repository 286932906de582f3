"""The modes of chaos by their names: what is read, where it goes, and in which way."""

from __future__ import annotations

import random
from pathlib import Path

from tests.stress.chaos_connectors import FromDebezium, FromKinesis, FromLines, FromMirror
from tests.stress.chaos_narrowed import Narrowed
from tests.stress.chaos_pgbench import Pgbench
from tests.stress.chaos_refused import PoisonedClickhouse, PoisonedPostgresql, Seats
from tests.stress.chaos_sql import SqlTarget
from tests.stress.chaos_targets import (
    ClickhouseTarget,
    FilesTarget,
    FromFiles,
    IcebergTarget,
    KafkaTarget,
    NessieTarget,
    Postgresql,
    SecuredTarget,
    Target,
    TrinoTarget,
)
from tests.systems import Fixtures

TARGETS: dict[str, type[Target]] = {
    "clickhouse": ClickhouseTarget,
    "connect-debezium": FromDebezium,
    "connect-file": FromLines,
    "connect-mirror": FromMirror,
    "files": FilesTarget,
    "files-source": FromFiles,
    "iceberg": IcebergTarget,
    "kafka": KafkaTarget,
    "kafka-secured": SecuredTarget,
    "kinesis": FromKinesis,
    "nessie": NessieTarget,
    "poison-clickhouse": PoisonedClickhouse,
    "poison-postgresql": PoisonedPostgresql,
    "postgresql": Postgresql,
    "seats": Seats,
    "trino": TrinoTarget,
}
FOLLOWED = "postgresql-cdc pgbench"
"""The mode in which a database is followed."""
LEFT_OUT = "postgresql-cdc narrowed"
"""The mode in which its publication is narrowed."""
QUERIES = [f"sql {way}" for way in SqlTarget.ways]
"""The modes of queries with state."""
MODES = [
    *(f"{name} {way}" for name, target in TARGETS.items() for way in target.ways),
    *QUERIES,
    FOLLOWED,
    LEFT_OUT,
]


def target(
    mode: str, given: Fixtures, chance: random.Random, folder: Path
) -> Target | SqlTarget | Pgbench:
    """The target of a mode: a sink and its way; a query; or a database and its copy."""
    if mode == FOLLOWED:
        return Pgbench(given, chance, folder)
    if mode == LEFT_OUT:
        return Narrowed(given, chance, folder)
    sink, way = mode.split()
    if mode in QUERIES:
        return SqlTarget(way, given, chance, folder)
    return TARGETS[sink](way, given, chance, folder)
