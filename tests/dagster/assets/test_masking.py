"""Secrets are taken out of a text wherever they came from."""

import json
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pydantic import SecretStr
from pyspark.sql import SparkSession
from typing_extensions import override

from dataflow_assets.assets import graph
from dataflow_assets.connectors.iceberg import IcebergSink
from dataflow_assets.connectors.kafka_connect import KafkaConnectSource
from dataflow_assets.connectors.memory import MemoryOffsetSource, MemorySliceSink, Store
from dataflow_assets.connectors.postgresql.sink.sink import PostgresqlSink
from dataflow_assets.contracts import Run, SinkSession, Target
from dataflow_assets.errors import TransientError
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.location.jobs.replay import replay_jobs
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.redaction import mask
from dataflow_assets.runs.request import Request
from dataflow_assets.secrets import Secrets
from tests.dagster.flows import SharedSpark, location, memory_flow

SECRET = "hunter22-very-secret"


def test_a_mounted_secret_is_masked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "default" / "shop").mkdir(parents=True)
    (tmp_path / "default" / "shop" / "dsn").write_text("postgresql://u:hunter22@host/db")
    monkeypatch.setenv("DATAFLOW_SECRETS", str(tmp_path))
    ref = {"name": "shop", "key": "dsn"}
    sink = PostgresqlSink.model_validate({"connectionStringSecretRef": ref, "table": "t"})
    source = MemoryOffsetSource(store="s", topic="t")
    flow = Flow("default", "a", source, (Branch(sink),))
    assert "hunter22" not in mask("the driver said: password hunter22 is wrong", [flow])


def test_a_value_is_masked_without_the_line_break_at_its_end_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a message quotes it, or where it was used without."""
    monkeypatch.setenv("DATAFLOW_SECRET__DEFAULT__LAKE__TOKEN", "hunter44\n")
    sink = IcebergSink.model_validate(
        {
            "catalogURI": "http://h",
            "namespace": "n",
            "table": "t",
            "tokenSecretRef": {"name": "lake", "key": "token"},
        }
    )
    flow = Flow("default", "a", MemoryOffsetSource(store="s", topic="t"), (Branch(sink),))
    assert mask(r"Invalid header value b'Bearer hunter44\n'", [flow]) == (
        r"Invalid header value b'Bearer ***\n'"
    )


def test_a_password_of_a_letter_blots_out_no_words() -> None:
    address = "postgresql://u:x@host/db"
    sink = PostgresqlSink.model_validate({"connectionString": address, "table": "t"})
    flow = Flow("default", "a", MemoryOffsetSource(store="s", topic="t"), (Branch(sink),))
    assert mask("the next run continues", [flow]) == "the next run continues"
    assert mask(f"no answer from {address}", [flow]) == "no answer from ***"


def test_passwords_inside_of_a_connector_s_credentials_are_masked(tmp_path: Path) -> None:
    secret = json.dumps({"database.password": "hunter22", "database.user": "postgres", "n": 1})
    source = KafkaConnectSource.model_validate(
        {"class": "C", "plugins": [str(tmp_path)], "spool": f"{tmp_path}/s", "credentials": secret}
    )
    sink = PostgresqlSink.model_validate({"connectionString": "postgresql://host", "table": "t"})
    flow = Flow("default", "a", source, (Branch(sink),))
    assert mask("postgres says: hunter22 is wrong", [flow]) == "postgres says: *** is wrong"


class Telling(MemorySliceSink):
    """Its client tells the password whenever it cannot log in, as often as `refusals` says."""

    refusals: int

    @override
    def open(self, target: Target, run: Run) -> SinkSession:
        store = Store(self.store)
        refused = store.query("select count(*) from identities where name like 'refused %'")[0][0]
        if refused < self.refusals:
            store.identify(f"refused {refused}", "yes")
            logging.getLogger("dataflow_assets.telling").warning("the log says: %s", SECRET)
            raise TransientError(f"the client says: cannot log in with {SECRET}")
        return super().open(target, run)


def telling(store: Store, refusals: int) -> Flow:
    name = store.name
    flow = memory_flow(store, branches=(Branch(Telling(store=name, table="t", refusals=refusals)),))
    return replace(flow, secrets=Secrets("n", {("n", "pg"): {"password": SecretStr(SECRET)}}))


@dataclass
class Seen:
    """All that a run shows: its events, its tags, its lines on the terminal, its processes."""

    instance: dg.DagsterInstance
    capfd: pytest.CaptureFixture[str]

    def of(self, result: dg.ExecuteInProcessResult) -> str:
        events = "\n".join(str(event) for event in self.instance.all_logs(result.run_id))
        run = str(self.instance.get_run_by_id(result.run_id))
        return "\n".join((events, run, *self.capfd.readouterr(), *_arguments()))


def _arguments() -> list[str]:
    """The command lines of this process and of those that it has started."""
    processes = Path("/proc", "self", "task").glob("*/children")
    started = [pid for each in processes for pid in each.read_text().split()]
    return [Path("/proc", pid, "cmdline").read_text() for pid in ("self", *started)]


@pytest.fixture
def seen(instance: dg.DagsterInstance, capfd: pytest.CaptureFixture[str]) -> Seen:
    return Seen(instance, capfd)


@pytest.mark.parametrize("refusals", [1, 1_000], ids=["tried again", "to the end"])
def test_a_run_shows_no_secret(
    refusals: int,
    store: Store,
    seen: Seen,
    engine: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DATAFLOW_PATIENCE", "0.6")
    store.produce("orders", 0, [b'{"id": 1, "name": "a"}'])
    job = location([telling(store, refusals)], engine).resolve_job_def("orders_job")
    to_the_end: dict[str, Any] = {"ops": {"orders": {"config": {}}}}
    result = job.execute_in_process(
        run_config=to_the_end, instance=seen.instance, raise_on_error=False
    )
    assert result.success == (refusals == 1)
    shown = seen.of(result)
    assert "the client says: cannot log in with ***" in shown
    assert SECRET not in shown


def test_a_replay_shows_no_secret(store: Store, seen: Seen, engine: SparkSession) -> None:
    store.produce("orders", 0, [b'{"id": -1, "name": "a"}'])
    list(drain(telling(store, 0), lambda: engine, Request()))
    flow = telling(store, 1_000)
    (job,) = replay_jobs(graph.build([flow]))
    result = job.execute_in_process(
        run_config={"ops": {"put_back": {"config": {"flow": flow.id}}}},
        instance=seen.instance,
        resources={"spark": SharedSpark(engine)},
        raise_on_error=False,
    )
    assert not result.success
    shown = seen.of(result)
    assert "the log says: ***" in shown
    assert "the client says: cannot log in with ***" in shown
    assert SECRET not in shown
