"""A password is replaced while a run lasts: the run goes on with the new one."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar

import psycopg
import pytest
from pydantic import SecretStr
from pyspark.sql import SparkSession
from typing_extensions import override

import devservers
from dataflow_assets.connectors.memory import MemoryOffsetSource, MemorySliceSink, Store
from dataflow_assets.connectors.postgresql.sink.sink import PostgresqlSink
from dataflow_assets.contracts import Run, SinkSession, Slice, Target, Ticket, Writer
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.lanes.events import Left
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Patience, Request
from dataflow_assets.secrets import Fills, SecretRef, Secrets
from dataflow_assets.secrets.tls import Tls
from tests.lanes.driving import Driving

REF = {"name": "target", "key": "password"}
PATIENCE = Patience(20, 0.05, 0.2)
KINDS: dict[str, type[PermanentError | TransientError]] = {
    "permanent": PermanentError,
    "transient": TransientError,
}


class Guarded(MemorySliceSink):
    """Asks for the password that the store says, on the driver and in each task."""

    password: SecretStr | None = None
    password_secret_ref: Annotated[SecretRef | None, Fills("password")] = None
    refuses: str = "permanent"
    attempts: ClassVar[list[str]] = []

    @override
    def open(self, target: Target, run: Run) -> SinkSession:
        self._log_in()
        return super().open(target, run)

    @override
    def writer(self, ticket: Ticket, piece: Slice) -> Writer:
        self._log_in()
        return super().writer(ticket, piece)

    def _log_in(self) -> None:
        given = self.password.get_secret_value() if self.password else ""
        self.attempts.append(given)
        if given != Store(self.store).identity("password"):
            raise KINDS[self.refuses]("the server refuses this password")


@dataclass
class Guard:
    """The password that the server asks for, and the file that the flow has it from."""

    store: Store
    file: Path

    def change(self, password: str) -> None:
        self.store.identify("password", password)

    def mount(self, password: str) -> None:
        self.file.write_text(password)


@pytest.fixture
def guard(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Guard:
    (tmp_path / "shop/target").mkdir(parents=True)
    monkeypatch.setenv("DATAFLOW_SECRETS", str(tmp_path))
    Guarded.attempts.clear()
    made = Guard(store, tmp_path / "shop/target/password")
    made.change("first")
    made.mount("first")
    return made


def _flow(store: Store, refuses: str) -> Flow:
    name = store.name
    source = MemoryOffsetSource(store=name, topic="t")
    sink = Guarded.model_validate(
        {"store": name, "table": "target", "passwordSecretRef": REF, "refuses": refuses}
    )
    return Flow("shop", "a", source, (Branch(sink),), secrets=Secrets("shop"), hash="h")


def _produce(store: Store, first: int, count: int) -> None:
    bodies = [json.dumps({"id": n, "name": "n"}).encode() for n in range(first, first + count)]
    store.produce("t", 0, bodies)


def _ids(store: Store) -> list[int]:
    return [id_ for (id_,) in store.query("select json_extract(row, '$.id') from rows order by 1")]


@pytest.mark.parametrize("refuses", KINDS)
def test_a_run_goes_on_with_the_new_password(
    refuses: str, guard: Guard, engine: SparkSession
) -> None:
    """Its session is open with the old one when a task is refused."""
    flow, store, over = _flow(guard.store, refuses), guard.store, threading.Event()
    _produce(store, 0, 5)
    request = Request(
        seconds=60, patience=PATIENCE, stop=lambda: "enough" if over.is_set() else None
    )
    for report in drain(flow, lambda: engine, request):
        if report.delta.rows and _ids(store) == list(range(5)):
            guard.change("second")
            guard.mount("second")
            _produce(store, 5, 5)
        elif _ids(store) == list(range(10)):
            over.set()
    assert _ids(store) == list(range(10))
    assert set(Guarded.attempts) == {"first", "second"}


def test_a_password_that_is_still_the_old_one_is_refused_for_good(
    guard: Guard, engine: SparkSession
) -> None:
    guard.change("second")
    with pytest.raises(PermanentError, match="the server refuses this password"):
        list(drain(_flow(guard.store, "permanent"), lambda: engine, Request(patience=PATIENCE)))
    assert Guarded.attempts == ["first"]


def test_each_new_password_is_tried_once(
    guard: Guard, engine: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is wrong too ends the run, as does a Secret that is gone by then."""
    guard.change("third")
    log_in = Guarded._log_in

    def replaced(sink: Guarded) -> None:
        guard.mount("second")
        log_in(sink)

    monkeypatch.setattr(Guarded, "_log_in", replaced)
    with pytest.raises(PermanentError, match="the server refuses this password"):
        list(drain(_flow(guard.store, "permanent"), lambda: engine, Request(patience=PATIENCE)))
    assert Guarded.attempts == ["first", "second"]

    def removed(sink: Guarded) -> None:
        guard.file.unlink()
        log_in(sink)

    monkeypatch.setattr(Guarded, "_log_in", removed)
    with pytest.raises(PermanentError, match="the server refuses this password"):
        list(drain(_flow(guard.store, "permanent"), lambda: engine, Request(patience=PATIENCE)))


def test_a_branch_of_several_is_opened_again(
    guard: Guard, engine: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be suspended for the rest of the run otherwise, while the other one goes on."""
    flow, store = _flow(guard.store, "permanent"), guard.store
    name = store.name
    other = Branch(MemorySliceSink(store=name, table="other"))
    guard.change("second")
    _produce(store, 0, 2)
    log_in = Guarded._log_in

    def replaced(sink: Guarded) -> None:
        guard.mount("second")
        log_in(sink)

    monkeypatch.setattr(Guarded, "_log_in", replaced)
    flow = replace(flow, branches=(*flow.branches, other))
    list(drain(flow, lambda: engine, Request(patience=PATIENCE)))
    assert (Guarded.attempts[0], set(Guarded.attempts[1:])) == ("first", {"second"})
    rows = store.query("select name, json_extract(row, '$.id') from rows order by 1, 2")
    assert rows == [("other", 0), ("other", 1), ("target", 0), ("target", 1)]


class Presenting(MemorySliceSink):
    """Shows a certificate whenever it opens, as a client does that reads it once."""

    tls: Tls
    shown: ClassVar[list[str]] = []

    @override
    def open(self, target: Target, run: Run) -> SinkSession:
        self.shown.append(Path(self.tls.ca_file or "").read_text())
        if self.shown[-1] != "new":
            self._meanwhile()
            raise PermanentError("the server refuses this certificate")
        return super().open(target, run)

    def _meanwhile(self) -> None:
        """What happens to the file until the server refuses what was read from it."""


def _presenting(store: Store, file: Path) -> Flow:
    Presenting.shown.clear()
    file.write_text("old")
    place = {"store": store.name, "table": "target", "tls": {"caFile": str(file)}}
    source = MemoryOffsetSource(store=store.name, topic="t")
    branch = Branch(Presenting.model_validate(place))
    return Flow("shop", "a", source, (branch,), secrets=Secrets("shop"), hash="h")


def test_a_run_goes_on_with_a_certificate_that_was_renewed_in_place(
    store: Store, engine: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path in the manifest is the same before and after."""
    flow, file = _presenting(store, tmp_path / "ca.crt"), tmp_path / "ca.crt"
    _produce(store, 0, 2)
    monkeypatch.setattr(Presenting, "_meanwhile", lambda _: file.write_text("new"))
    list(drain(flow, lambda: engine, Request(patience=PATIENCE)))
    assert Presenting.shown == ["old", "new"]
    assert _ids(store) == [0, 1]


def test_a_certificate_that_is_still_the_old_one_is_refused_for_good(
    store: Store, engine: SparkSession, tmp_path: Path
) -> None:
    flow = _presenting(store, tmp_path / "ca.crt")
    with pytest.raises(PermanentError, match="the server refuses this certificate"):
        list(drain(flow, lambda: engine, Request(patience=PATIENCE)))
    assert Presenting.shown == ["old"]


@pytest.mark.parametrize("refuses", KINDS)
def test_a_lane_opens_the_flow_again(
    refuses: str, guard: Guard, engine: SparkSession, drive: Callable[..., Driving]
) -> None:
    flow, store = _flow(guard.store, refuses), guard.store
    _produce(store, 0, 5)
    driving = drive(flow)
    driving.until(lambda: _ids(store) == list(range(5)))
    guard.change("second")
    guard.mount("second")
    _produce(store, 5, 5)
    driving.until(lambda: _ids(store) == list(range(10)))
    assert not [event for event in driving.events if isinstance(event, Left)]


@pytest.fixture
def drive(engine: SparkSession) -> Iterator[Callable[..., Driving]]:
    """A factory of lanes; each is ended after the test."""
    driven: list[Driving] = []

    def make(*flows: Flow) -> Driving:
        driven.append(Driving(lambda: engine, flows))
        return driven[-1]

    yield make
    for one in driven:
        one.end()


def test_a_run_into_postgresql_goes_on_with_the_new_password(
    locked: devservers.PostgreSQL,
    store: Store,
    engine: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server ends the connections of the run when its password is replaced."""
    file = tmp_path / "shop/pg/dsn"
    file.parent.mkdir(parents=True)
    monkeypatch.setenv("DATAFLOW_SECRETS", str(tmp_path))

    def change(password: str) -> None:
        with psycopg.connect(locked.dsn(), autocommit=True) as connection:
            connection.execute(f"ALTER ROLE flow PASSWORD '{password}'".encode())
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'flow'"
            )
        file.write_text(f"postgresql://flow:{password}@127.0.0.1:{locked.port}/postgres")

    change("first")
    name = store.name
    sink = PostgresqlSink.model_validate(
        {
            "connectionStringSecretRef": {"name": "pg", "key": "dsn"},
            "table": "flow.orders",
            "autoCreateTable": True,
        }
    )
    source = MemoryOffsetSource(store=name, topic="t")
    flow = Flow("shop", "a", source, (Branch(sink),), secrets=Secrets("shop"), hash="h")
    _produce(store, 0, 5)
    done, over = 0, threading.Event()
    request = Request(
        seconds=60, patience=PATIENCE, stop=lambda: "enough" if over.is_set() else None
    )
    for report in drain(flow, lambda: engine, request):
        done += report.delta.rows
        if done == 5 and report.delta.rows:
            change("second")
            _produce(store, 5, 5)
        elif done == 10:
            over.set()
    with psycopg.connect(locked.dsn()) as connection:
        found = connection.execute("SELECT id FROM flow.orders ORDER BY id").fetchall()
    assert found == [(number,) for number in range(10)]
