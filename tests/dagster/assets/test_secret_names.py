"""Topics, namespaces and tables that only Secrets name, in Dagster, beside a healthy flow."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from confluent_kafka import Producer
from pydantic import SecretStr
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.assets import graph, ingest
from dataflow_assets.assets.flow_events import FlowEvents
from dataflow_assets.assets.lane_evictions import Evictions
from dataflow_assets.assets.metadata import flow_metadata
from dataflow_assets.connectors.iceberg import IcebergSink, IcebergSource, NessieSink, NessieSource
from dataflow_assets.connectors.kafka import KafkaSink, KafkaSource
from dataflow_assets.connectors.memory import MemorySliceSink, Store
from dataflow_assets.connectors.trino.sink.sink import TrinoSink
from dataflow_assets.contracts import Connector
from dataflow_assets.errors import DataflowError, PermanentError
from dataflow_assets.flow import Branch, Flow, asset_key
from dataflow_assets.location.resources.io_managers import io_managers
from dataflow_assets.location.sensors.checkpoints import Checkpoints
from dataflow_assets.manifests.load import load
from dataflow_assets.sdk.table_frames import FrameSink
from dataflow_assets.secrets import Secrets, resolve
from tests.conftest import Topics
from tests.connectors.iceberg.driver import connection
from tests.dagster.assets.lanes.shop import QUIET, UNCAPTURED, Shop
from tests.dagster.flows import memory_flow
from tests.stand_in import until

VALUES = {
    ("default", "s"): {
        name: SecretStr(text)
        for name, text in {
            "in": "incoming",
            "out": "outgoing",
            "space": "analytics",
            "table": "events",
            "url": "http://127.0.0.1:9",
            "brokers": "127.0.0.1:9",
        }.items()
    }
}
SECRETS = Secrets(documents=VALUES)


def ref(key: str) -> dict[str, str]:
    return {"name": "s", "key": key}


TOPIC = {"brokersSecretRef": ref("brokers"), "topicSecretRef": ref("in")}
TABLE = {"namespaceSecretRef": ref("space"), "tableSecretRef": ref("table")}
ENDS: list[tuple[type[Connector], dict[str, Any], str, str]] = [
    (KafkaSource, TOPIC, "kafka/s/s/in", "kafka/s/incoming"),
    (KafkaSink, TOPIC, "kafka/s/s/in", "kafka/s/incoming"),
    *(
        (cls, {**TABLE, key: ref("url")}, f"{system}/s/s/space/s/table", f"{system}/s/{real}")
        for cls, key, system, real in (
            (IcebergSource, "catalogURISecretRef", "iceberg", "analytics/events"),
            (IcebergSink, "catalogURISecretRef", "iceberg", "analytics/events"),
            (NessieSource, "baseURLSecretRef", "nessie", "analytics/events"),
            (NessieSink, "baseURLSecretRef", "nessie", "analytics/events"),
        )
    ),
]


@pytest.mark.parametrize(
    ("cls", "config", "known", "real"), ENDS, ids=[cls.__name__ for cls, *_ in ENDS]
)
def test_the_address_is_the_same_once_secrets_are_resolved(
    cls: type[Connector], config: Mapping[str, Any], known: str, real: str
) -> None:
    declared = cls.model_validate(config)
    resolved = resolve(declared, SECRETS)
    assert str(declared.address()) == str(resolved.address()) == known
    assert declared.spellings() == resolved.spellings()
    assert str(resolved.resolved_address()) == real


@pytest.mark.parametrize(
    ("sink", "names"),
    [
        (IcebergSink.model_validate({**TABLE, "catalogURI": "http://h"}), ("analytics", "events")),
        (NessieSink.model_validate({**TABLE, "baseURL": "http://h:1"}), ("analytics", "events")),
        (
            TrinoSink.model_validate(
                {
                    "serverURL": "http://h:1",
                    "catalog": "c",
                    "schemaSecretRef": ref("space"),
                    "table": "t",
                }
            ),
            ("analytics", "t"),
        ),
        (
            IcebergSink.model_validate({"namespace": "n", "table": "t", "catalogURI": "http://h"}),
            None,
        ),
    ],
    ids=["iceberg", "nessie", "trino", "none"],
)
def test_users_assets_read_a_table_that_only_secrets_name(
    sink: FrameSink, names: tuple[str, str] | None, monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    """The table's asset key has the names of the Secrets; what is read has what they hold."""
    asked: list[tuple[str | None, str]] = []

    def frames(_: FrameSink, namespace: str | None, table: str) -> None:
        asked.append((namespace, table))
        raise PermanentError("asked")

    monkeypatch.setattr(type(sink), "frames", frames)
    flow = replace(memory_flow(store, branches=(Branch(sink, "here"),)), secrets=SECRETS)
    built = graph.build([flow])
    spec = dg.AssetSpec(built.nodes[0].key, metadata=flow_metadata(built.nodes[0]))

    @dg.asset(ins={"up": dg.AssetIn(key=spec.key)})
    def down(up: Any) -> None:
        """Never gets it."""

    dg.materialize(
        [spec.with_io_manager_key(type(sink).type), down],
        selection=[down],
        resources={"spark": dg.ResourceDefinition.none_resource(), **io_managers(built)},
        raise_on_error=False,
    )
    assert asked == [names or ("n", "t")]


def test_a_branch_has_one_id_and_its_checkpoint_the_real_name() -> None:
    branch = Branch(NessieSink.model_validate({**TABLE, "baseURL": "http://h:1"}))
    resolved = Branch(resolve(branch.sink, SECRETS))
    assert branch.id == resolved.id == "nessie:s/space:s/table"
    assert resolved.stored_id == "nessie:analytics:events"  # as versions before had it


def test_two_keys_of_a_secret_are_two_topics(tmp_path: Path) -> None:
    one, two = (
        {"source": ("kafka", {"brokers": ["h:1"], "topicSecretRef": ref(begin)}), "sink": end}
        for begin, end in (
            ("in", ("kafka", {"brokers": ["h:1"], "topicSecretRef": ref("out")})),
            ("out", ("kafka", {"brokers": ["h:1"], "topicSecretRef": ref("table")})),
        )
    )
    write(tmp_path, one=one, two=two)
    loaded = load(tmp_path)
    assert not loaded.findings
    first, second = loaded.flows
    ends = [first.source_address, first.branches[0].address, second.branches[0].address]
    assert len({asset_key(one) for one in ends}) == 3
    assert asset_key(second.source_address) == asset_key(first.branches[0].address)


DIRECT, BY_SECRET = {"brokers": ["h:1"]}, {"brokersSecretRef": ref("brokers")}


@pytest.mark.parametrize(
    ("one", "other"),
    [(DIRECT, DIRECT), (BY_SECRET, BY_SECRET), (BY_SECRET, DIRECT), (DIRECT, BY_SECRET)],
    ids=["named", "by Secret", "source by Secret", "sink by Secret"],
)
def test_secrets_that_hold_one_name_are_no_two_ends(
    tmp_path: Path, one: Mapping[str, Any], other: Mapping[str, Any]
) -> None:
    """Else the flow would read its own rows, and write them again, for ever."""
    source = ("kafka", {**one, "topicSecretRef": ref("a")})
    sink = ("kafka", {**other, "topicSecretRef": ref("b")})
    write(tmp_path, loop={"source": source, "sink": sink})
    (tmp_path / "secret.yaml").write_text(secret({"a": "one", "b": "one", "brokers": "h:1"}))
    (flow,) = load(tmp_path).flows
    with pytest.raises(PermanentError, match=r"reads what it writes: the Secrets of kafka/\S+/s/a"):
        flow.resolve()


@pytest.mark.parametrize(
    ("direct", "reference"),
    [("topic: t", "topicSecretRef"), ("consumerGroup: g", "consumerGroupSecretRef")],
)
def test_a_value_beside_its_reference_is_a_mistake(
    tmp_path: Path, direct: str, reference: str
) -> None:
    key, value = direct.split(": ")
    config = {"brokers": ["h:1"], "topic": "t", key: value, reference: ref("in")}
    sink = ("kafka", {"brokers": ["h:1"], "topic": "other"})
    file = write(tmp_path, a={"source": ("kafka", config), "sink": sink})[0]
    (found,) = load(tmp_path).findings
    assert found.message == f"is set beside {reference}: keep one of the two"
    assert file.read_text().splitlines()[found.line - 1].strip() == direct


def test_a_sensor_goes_on_with_the_others(store: Store) -> None:
    """One of them meets a mistake of the program itself."""

    class Odd(MemorySliceSink):
        def resolved_address(self) -> Any:
            raise StopIteration

    flows = [memory_flow(store), memory_flow(store, "odd", topic="odd", table="odd")]
    odd = Branch(Odd(store=store.name, table="odd"))
    flows[1] = Flow("default", "odd", flows[1].source, (odd,), hash="h" * 64)
    nodes = list(graph.build(flows).nodes)
    with dg.DagsterInstance.ephemeral() as instance:
        found = Checkpoints().positions(instance, nodes)
    by_name = {node.flow.name: found[node.key] for node in nodes}
    assert by_name["orders"] is None
    assert isinstance(by_name["odd"], DataflowError)
    assert "unexpected StopIteration" in str(by_name["odd"])


def test_a_lane_goes_on_with_the_others(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.add("a", "b")
    for name in "ab":
        shop.produce(name, 1, 2)
    take = FlowEvents.take

    def refuse(self: FlowEvents, report: Any) -> None:
        if report.flow.endswith("/a"):
            raise KeyError(report.flow)
        take(self, report)

    monkeypatch.setattr(FlowEvents, "take", refuse)
    result = shop.lane()
    assert result.success
    assert [shop.rows(name) for name in "ab"] == [[1, 2], [1, 2]]
    assert [len(shop.events(name)) > 0 for name in "ab"] == [False, True]
    assert "leaves the lane: its events cannot be made: unexpected KeyError" in shop.log(
        result, "a"
    )


def test_events_that_cannot_be_made_are_said_in_each_stay(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flow whose manifest was edited is back in its lane; it does not go on without events."""
    shop.add("a", "b")
    shop.produce("a", 1)
    take, evictions = FlowEvents.take, Evictions(shop.instance)

    def refuse(self: FlowEvents, report: Any) -> None:
        if report.flow == "default/a":
            raise KeyError(report.flow)
        take(self, report)

    monkeypatch.setattr(FlowEvents, "take", refuse)
    running = shop.aside()
    until(lambda: evictions.of(shop.flows) and shop.driven() == {"default/b"})
    shop.edit("a", hash="edited")
    shop.produce("a", 2)
    until(lambda: evictions.by_flow(shop.flows)["default/a"].times == 2)
    assert "its events cannot be made: unexpected KeyError" in shop.log(shop.ended(running), "a")


def test_flows_whose_ends_only_secrets_name_run_in_a_lane(
    shop: Shop,
    kafka: devservers.Kafka,
    topic: Topics,
    seaweedfs: devservers.SeaweedFS,
    catalog: Catalog,
    namespace: str,
    tmp_path: Path,
) -> None:
    names = {"brokers": kafka.bootstrap, "in": topic(), "out": topic(), "space": namespace}
    lake = connection(seaweedfs, "", "") | {**TABLE, "autoCreateTable": True}
    del lake["namespace"], lake["table"]
    ends = {key: ("kafka", {**TOPIC, "topicSecretRef": ref(key)}) for key in ("in", "out")}
    write(
        tmp_path,
        first={"source": ends["in"], "sink": ends["out"]},
        second={"source": ends["out"], "sink": ("iceberg", lake)},
    )
    (tmp_path / "secret.yaml").write_text(secret({**names, "table": "orders"}))
    shop.add("healthy")
    shop.flows += load(tmp_path).flows
    shop.produce("healthy", 1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(names["in"], json.dumps({"id": 7, "name": "n"}).encode())
    producer.flush(30)
    nodes = graph.build(shop.flows).nodes
    assert not any(
        isinstance(one, DataflowError)
        for one in Checkpoints().positions(shop.instance, nodes).values()
    )
    running = shop.aside()
    until(lambda: ids_in(catalog, (namespace, "orders")) == [7], 60)
    until(lambda: shop.rows("healthy") == [1], 60)
    assert shop.ended(running).success
    told = {
        node.flow.name
        for node in nodes
        if shop.instance.get_latest_materialization_event(dg.AssetKey(list(node.key)))
    }
    assert told == {"healthy", "first", "second"}
    found = Checkpoints().positions(shop.instance, nodes)
    assert all(isinstance(found[node.key], Mapping) for node in nodes)


def ids_in(catalog: Catalog, name: tuple[str, str]) -> list[int]:
    if not catalog.table_exists(name):
        return []
    return [row["id"] for row in catalog.load_table(name).scan().to_arrow().to_pylist()]


@pytest.fixture
def shop(
    store: Store, home: str, engine: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shop]:
    monkeypatch.setenv("DATAFLOW_START", "1")  # drives although no switch is on
    monkeypatch.setattr(ingest, "IDLE_SECONDS", QUIET)
    with dg.DagsterInstance.local_temp(home, overrides=UNCAPTURED) as instance:
        made = Shop(store, instance, engine, monkeypatch)
        yield made
        made.pool.shutdown()


def write(folder: Path, **flows: Mapping[str, tuple[str, Mapping[str, Any]]]) -> list[Path]:
    """A manifest for each flow, by the type and the options of its ends."""
    files = []
    for name, ends in flows.items():
        spec = {end: {"type": kind, "config": dict(config)} for end, (kind, config) in ends.items()}
        whole = {
            "apiVersion": "dataflow.dataflow.io/v1",
            "kind": "DataFlow",
            "metadata": {"name": name},
            "spec": {**spec, "freshness": 4},
        }
        files.append(folder / f"{name}.yaml")
        files[-1].write_text(yaml.safe_dump(whole, sort_keys=False))
    return files


def secret(values: Mapping[str, str]) -> str:
    whole = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    return yaml.safe_dump({**whole, "stringData": dict(values)})
