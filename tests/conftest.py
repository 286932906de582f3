"""Fixtures on real servers: one of each per session, started by the first test that asks.

Many short sessions need not start them each time: `make servers-up` once, then set
DATAFLOW_TEST_SERVERS to its folder. What tests share is kept apart by fresh names: a topic, a
schema, a namespace per test.
"""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

import pytest

import devservers
from dataflow_assets.secrets import lookup
from dataflow_assets.spark.process import Server
from dataflow_assets.spark.session import Spark, SparkSettings
from devservers.go_programs import KUBE_APISERVER
from tests import heavy
from tests.examples import all_of_them
from tests.in_process import Session

if TYPE_CHECKING:
    import psycopg
    from clickhouse_connect.driver.client import Client
    from confluent_kafka.admin import AdminClient
    from pyiceberg.catalog import Catalog
    from pyspark.sql import SparkSession

    from dataflow_assets.connectors.memory import Store
    from tests.connectors.iceberg.driver import MakeSink

SHARED = "DATAFLOW_TEST_SERVERS"
_TEMPORARY = tempfile.gettempdir()
_LONG = frozenset({"spark_server", "_mortal_spark", "trino"})  # fixtures
S = TypeVar("S", bound=Server)


@pytest.fixture(autouse=True)
def _no_secrets_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process masks the secret values that it has resolved: those of other tests are words."""
    monkeypatch.setattr(lookup, "_given", {})


class Topics(Protocol):
    """Creates a topic of a fresh name and returns the name."""

    def __call__(self, partitions: int = 1, config: Mapping[str, str] | None = None) -> str: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--full`: what `make test-all` asks for."""
    parser.addoption("--full", action="store_true", help="every law on Spark, with every other end")


def pytest_configure(config: pytest.Config) -> None:
    """Manifests of tests may name folders of the disk, where tests make theirs."""
    os.environ["DATAFLOW_FILES"] = _TEMPORARY
    if config.getoption("--full"):
        all_of_them()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m heavy` and `-m alone` files without such a test are not imported.

    Importing all of them costs each process that tests a quarter of a minute.
    """
    mark = config.getoption("markexpr")
    if mark not in heavy.MARKS or config.getoption("--full"):
        return None
    skipped = collection_path.match("test_*.py") and not heavy.may_have(collection_path, mark)
    return skipped or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked `full` are for `make test-all` alone: others hold the same in less time.

    So are the laws for a connector whose server is heavy, but for those of ESSENTIAL.
    """
    of_servers = [item for item in items if heavy.has_heavy_end(item)]
    for item in of_servers:
        item.add_marker("heavy")
    if config.getoption("--full"):
        return
    for item in of_servers:
        if not heavy.is_essential(item):
            item.add_marker("full")
    left = [item for item in items if item.get_closest_marker("full")]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if not item.get_closest_marker("full")]
    items.sort(key=lambda item: not _comes_first(item))
    heavy.refuse_hidden(items)


def _comes_first(item: pytest.Item) -> bool:
    """The long ones, so that in the end no process waits for another: whole flows, Spark, Trino.

    One process has all on Spark, as each begins with a part of the tests: the others start none.
    """
    is_long = not _LONG.isdisjoint(getattr(item, "fixturenames", ()))
    return is_long or item.get_closest_marker("e2e") is not None


def pytest_collection_finish() -> None:
    """The garbage collector passes over modules and tests, which stay to the end."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _temporary_files(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What processes leave behind that are killed goes with the folders of pytest."""
    shared = os.environ.get(SHARED)
    if shared and devservers.read(Path(shared)).spark is not None:
        return  # its workers have a folder of their own, in which they look for what we put there
    folder = str(tmp_path_factory.mktemp("left"))
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    os.environ["JDK_JAVA_OPTIONS"] += f" -Djava.io.tmpdir={folder}"


@pytest.fixture(scope="session")
def servers_folder() -> Iterator[Path]:
    """Data of this session's own servers; deleted afterwards, unless DATAFLOW_KEEP is set.

    Not below the folders of pytest: PostgreSQL may run as another user, who cannot enter them.
    """
    folder = Path(tempfile.mkdtemp(prefix="dataflow-tests-", dir=_TEMPORARY))
    yield folder
    if "DATAFLOW_KEEP" not in os.environ:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def kafka(servers_folder: Path) -> Iterator[devservers.Kafka]:
    yield from _shared_or_own(devservers.Kafka(servers_folder / "kafka"))


@pytest.fixture(scope="session")
def proxied_kafka(servers_folder: Path) -> Iterator[devservers.ProxiedKafka]:
    """A broker of this session's own: faults of a shared one would be everybody's."""
    yield from _own(devservers.ProxiedKafka(servers_folder / "proxied-kafka"))


@pytest.fixture(scope="session")
def postgresql(servers_folder: Path) -> Iterator[devservers.PostgreSQL]:
    server = devservers.PostgreSQL(servers_folder / "postgresql")
    yield from _shared_or_own(server, devservers.PostgreSQL.stop)  # which frees shared memory


@pytest.fixture(scope="session")
def kubernetes(servers_folder: Path) -> Iterator[devservers.Kubernetes]:
    """An API server of this session's own; skipped where its program is not built."""
    if reason := KUBE_APISERVER.missing():
        pytest.skip(reason)
    yield from _own(devservers.Kubernetes(servers_folder / "kubernetes"))


@pytest.fixture(scope="session")
def seaweedfs(servers_folder: Path) -> Iterator[devservers.SeaweedFS]:
    yield from _shared_or_own(devservers.SeaweedFS(servers_folder / "seaweedfs"))


@pytest.fixture(scope="session")
def clickhouse(servers_folder: Path) -> Iterator[devservers.ClickHouse]:
    yield from _shared_or_own(devservers.ClickHouse(servers_folder / "clickhouse"))


@pytest.fixture(scope="session")
def kinesis(servers_folder: Path) -> Iterator[devservers.Kinesis]:
    """Streams of this session's own: it starts in a second."""
    yield from _own(devservers.Kinesis(servers_folder / "kinesis"))


@pytest.fixture(scope="session")
def mariadb(servers_folder: Path) -> Iterator[devservers.MariaDB]:
    """A server of this session's own: it starts in two seconds."""
    yield from _own(devservers.MariaDB(servers_folder / "mariadb"))


@pytest.fixture
def mysql_database(mariadb: devservers.MariaDB) -> Iterator[str]:
    """The name of a fresh database of MariaDB; dropped after the test."""
    name = _fresh("d")
    mariadb.execute(f"CREATE DATABASE {name}")
    yield name
    mariadb.execute(f"DROP DATABASE IF EXISTS {name}")


@pytest.fixture(scope="session")
def apicurio(servers_folder: Path) -> Iterator[devservers.Apicurio]:
    """A registry of this session's own: few tests need one, and those run in one process."""
    yield from _own(devservers.Apicurio(servers_folder / "apicurio"))


@pytest.fixture(scope="session")
def trino(
    servers_folder: Path, seaweedfs: devservers.SeaweedFS, postgresql: devservers.PostgreSQL
) -> Iterator[devservers.Trino]:
    """That of DATAFLOW_TEST_SERVERS where one runs; skipped where there is no Java 24."""
    from devservers.trino import missing

    if reason := missing():
        pytest.skip(reason)
    folder = os.environ.get(SHARED)
    if folder and (shared := devservers.read(Path(folder)).trino):
        yield shared
        return
    own = devservers.Trino(servers_folder / "trino", store=seaweedfs, database=postgresql)
    yield from _own(own)


@pytest.fixture
def trino_schema(trino: devservers.Trino) -> Iterator[str]:
    """The name of a fresh schema of the catalog `lake`; its tables go with it after the test."""
    from tests.connectors.trino.driver import execute

    name = _fresh("t")
    execute(trino, f"CREATE SCHEMA lake.{name}")
    yield name
    for (table,) in execute(trino, f"SHOW TABLES FROM lake.{name}"):
        execute(trino, f'DROP TABLE lake.{name}."{table}"')
    execute(trino, f"DROP SCHEMA lake.{name}")


@pytest.fixture(scope="session")
def spark_server(servers_folder: Path) -> Iterator[devservers.SparkConnect]:
    yield from _shared_or_own(devservers.SparkConnect(servers_folder / "spark"))


@pytest.fixture(scope="session")
def _mortal_spark(servers_folder: Path) -> Iterator[devservers.SparkConnect]:
    yield from _own(devservers.SparkConnect(servers_folder / "mortal-spark"))


@pytest.fixture
def mortal_spark(_mortal_spark: devservers.SparkConnect) -> devservers.SparkConnect:
    """A server of this session's own that tests may kill: it runs when the next one begins."""
    return _mortal_spark.start()


@pytest.fixture(scope="session")
def spark(spark_server: devservers.SparkConnect) -> SparkSession:
    """A Connect session with our package as it is now, as runs make it."""
    return Spark(SparkSettings(spark_server.remote)).session()


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> SparkSession:
    """Runs passes: in this process, which takes milliseconds; with --full on Spark."""
    if request.config.getoption("--full"):
        return request.getfixturevalue("spark")  # type: ignore[no-any-return]
    return cast("SparkSession", Session(partial(request.getfixturevalue, "spark")))


@pytest.fixture(scope="session")
def _topics_admin(kafka: devservers.Kafka) -> AdminClient:
    """One for all topics: connecting takes longer than what it is asked for."""
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})


@pytest.fixture
def topic(_topics_admin: AdminClient) -> Iterator[Topics]:
    """A factory: `topic(partitions=3, config={...})` creates one and returns its name."""
    admin = _topics_admin
    created: list[str] = []

    def create(partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # public, untyped

        name = _fresh("t")
        new = NewTopic(name, partitions, 1, config=dict(config or {}))
        admin.create_topics([new])[name].result(30)
        created.append(name)
        return name

    yield create
    if created:
        for deleted in admin.delete_topics(created).values():
            deleted.exception(30)  # the test may have deleted it itself


@pytest.fixture
def schema(postgresql: devservers.PostgreSQL) -> Iterator[str]:
    """The name of a fresh schema in database `postgres`; dropped after the test."""
    import psycopg

    name = _fresh("s")
    with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
        connection.execute(f'CREATE SCHEMA "{name}"')
    yield name
    with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
        _drop(connection, name)


def _drop(connection: psycopg.Connection, schema: str) -> None:
    """Again and again for half a minute: a task of a killed driver may still be at work.

    Such a task reads one table and writes another one over two connections. It may wait for a table
    that is dropped already, and the drop for the other one.
    """
    import psycopg

    connection.execute("SET lock_timeout = '500ms'")
    for _ in range(60):
        with suppress(psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
            connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE'.encode())
            return
    working = connection.execute(_WORKING).fetchall()
    pytest.fail(f"the test has left a transaction open, one of {working}")


@pytest.fixture
def own_database(postgresql: devservers.PostgreSQL) -> Iterator[str]:
    """The address of a fresh PostgreSQL database, for what has one name in all of a database."""
    import psycopg

    name = _fresh("d")
    with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    yield postgresql.dsn(name)
    with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


_WORKING = """
SELECT application_name, state, now() - xact_start, wait_event, left(query, 200)
FROM pg_stat_activity WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid()
"""


@pytest.fixture(scope="session")
def _databases_client(clickhouse: devservers.ClickHouse) -> Iterator[Client]:
    """One for all databases, as for topics."""
    import clickhouse_connect

    dsn = clickhouse.dsn()
    with clickhouse_connect.get_client(dsn=dsn, autogenerate_session_id=False) as client:
        yield client


@pytest.fixture
def database(_databases_client: Client) -> Iterator[str]:
    """The name of a fresh ClickHouse database; dropped after the test."""
    name = _fresh("d")
    _databases_client.command(f"CREATE DATABASE {name}")
    yield name
    _databases_client.command(f"DROP DATABASE IF EXISTS {name}")


@pytest.fixture(scope="session")
def catalog(seaweedfs: devservers.SeaweedFS) -> Catalog:
    """PyIceberg's catalog on the session's SeaweedFS."""
    from pyiceberg.catalog import load_catalog

    return load_catalog("lake", **seaweedfs.catalog_properties())


@pytest.fixture(scope="session")
def nessie(servers_folder: Path, seaweedfs: devservers.SeaweedFS) -> Iterator[devservers.Nessie]:
    """A server of this session's own, on its object store; skipped where there is no Java 21."""
    from devservers.nessie import missing

    if reason := missing():
        pytest.skip(reason)
    yield from _own(devservers.Nessie(servers_folder / "nessie", store=seaweedfs))


@pytest.fixture(scope="session")
def nessie_catalog(nessie: devservers.Nessie) -> Catalog:
    """PyIceberg's catalog on the branch `main` of the session's Nessie."""
    from pyiceberg.catalog import load_catalog

    return load_catalog("nessie", **nessie.catalog_properties())


@pytest.fixture
def nessie_namespace(nessie_catalog: Catalog) -> Iterator[str]:
    """The name of a fresh namespace on `main`."""
    name = _fresh("n")
    nessie_catalog.create_namespace(name)
    yield name
    for table in nessie_catalog.list_tables(name):
        nessie_catalog.drop_table(table)
    nessie_catalog.drop_namespace(name)


@pytest.fixture
def namespace(catalog: Catalog) -> Iterator[str]:
    """The name of a fresh Iceberg namespace; its tables go with it after the test."""
    name = _fresh("n")
    catalog.create_namespace(name)
    yield name
    for table in catalog.list_tables(name):
        catalog.drop_table(table)
    catalog.drop_namespace(name)


@pytest.fixture
def make(seaweedfs: devservers.SeaweedFS, namespace: str) -> MakeSink:
    """A factory of Iceberg sinks on the fresh namespace: `make(**changes)`."""
    from tests.connectors.iceberg.driver import make_sink

    return partial(make_sink, seaweedfs, namespace)


@pytest.fixture
def store() -> Iterator[Store]:
    """A fresh store for the in-memory connectors."""
    from dataflow_assets.connectors.memory import Store

    store = Store(uuid.uuid4().hex)
    store.create()
    yield store
    store.remove()


def _own(server: S, end: Callable[[S], None] = Server.kill) -> Iterator[S]:
    """Started, and killed in the end: nobody needs the data that it would put in order first."""
    try:
        yield server.start()
    finally:
        end(server)


def _shared_or_own(own: S, end: Callable[[S], None] = Server.kill) -> Iterator[S]:
    """The running server of DATAFLOW_TEST_SERVERS, left alone afterwards, else an own one."""
    folder = os.environ.get(SHARED)
    if folder is None:
        yield from _own(own, end)
        return
    shared = getattr(devservers.read(Path(folder)), own.name)
    if shared is None:
        pytest.fail(f"{SHARED}={folder}: no {own.name} runs there; start it with `make servers-up`")
    yield shared


def _fresh(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex[:12]}"
