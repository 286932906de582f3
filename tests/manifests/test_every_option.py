"""Every option of every connector, step and language works, or says that it does not.

All of them are enumerated from the models and tables themselves: a new option that nothing reads,
and that no note or finding speaks of, fails here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest

from dataflow_assets import registry
from dataflow_assets.languages.common import connect_keys
from dataflow_assets.languages.common.client_keys import CLIENT
from dataflow_assets.languages.common.key_tables import Key
from dataflow_assets.languages.connect.reader import keys as sinks
from dataflow_assets.languages.dataflow.model import Manifest
from dataflow_assets.languages.dataflow.notes import UNUSED
from dataflow_assets.languages.justone.reader import keys as justone
from dataflow_assets.languages.pipelines.reader import options as pipelines
from dataflow_assets.languages.sql.reader import options as sql
from dataflow_assets.languages.sql.reader.change_formats import CHANGE_FORMATS
from dataflow_assets.languages.sql.reader.ends import PRODUCERS
from dataflow_assets.languages.sql.reader.settings import SETTINGS
from dataflow_assets.languages.tableflow.model import Tableflow
from dataflow_assets.manifests.check import as_lines
from dataflow_assets.manifests.load import load
from dataflow_assets.secrets import Fills
from dataflow_assets.spec import Hint, Refused, Spec, marks
from tests import ROOT
from tests.languages.connect import files as connect_files
from tests.stress.fuzz_manifests import NEIGHBOURS

ENGINE = ROOT / "dataflow_assets"
CHECKS = frozenset({"broken_rules", "remarks"})
"""What only looks whether options fit each other: no effect of theirs."""


def models() -> dict[str, type[Spec]]:
    """Those of manifests, by what people know them by, with those inside of them."""
    found: dict[str, type[Spec]] = {"DataFlow": Manifest, "Tableflow": Tableflow}
    for what, ends in (("source", registry.sources()), ("sink", registry.sinks())):
        found |= {f"{name} {what}": cls for name, cls in ends.items() if not cls.double}
    found |= {f"step {name}": cls for name, cls in registry.steps().items()}
    seen: dict[type[Spec], str] = {}
    for name, cls in found.items():
        for inner in within(cls):
            seen.setdefault(inner, name if inner is cls else f"{name}: {inner.__name__}")
    return {name: cls for cls, name in seen.items()}


def within(cls: type[Spec]) -> Iterator[type[Spec]]:
    yield cls
    for info in cls.model_fields.values():
        for inner in specs(info.annotation):
            if inner is not cls:
                yield from within(inner)


def specs(annotation: Any) -> Iterator[type[Spec]]:
    if isinstance(annotation, type) and issubclass(annotation, Spec):
        yield annotation
    for argument in get_args(annotation):
        yield from specs(argument)


@cache
def names_read() -> frozenset[str]:
    """Every attribute, and every word, that the engine reads outside of its checks."""
    found: set[str] = set()
    for file in ENGINE.rglob("*.py"):
        Reads(found).visit(ast.parse(file.read_text(encoding="utf-8")))
    return frozenset(found)


class Reads(ast.NodeVisitor):
    def __init__(self, found: set[str]) -> None:
        self.found = found

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name not in CHECKS:
            self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Load):
            self.found.add(node.attr)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """`getattr(spec, name)` with a name from a table of names."""
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self.found.add(node.value)


FIELDS = [
    pytest.param(cls, name, id=f"{what}.{info.alias or name}")
    for what, cls in models().items()
    for name, info in cls.model_fields.items()
]


def test_the_options_are_many() -> None:
    assert len(FIELDS) > 500


@pytest.mark.parametrize(("cls", "name"), FIELDS)
def test_an_option_is_read_or_says_what_happens_instead(cls: type[Spec], name: str) -> None:
    info = cls.model_fields[name]
    told = [*marks(info, Hint), *marks(info, Refused), *marks(info, Fills)]
    assert told or name in names_read() or info.alias in names_read()


def test_no_error_sink_reads_what_is_noted_as_unused() -> None:
    texts = [file.read_text("utf-8") for file in ENGINE.glob("connectors/*/rejected/*.py")]
    assert len(texts) > 10
    assert [name for name in UNUSED if any(f"sink.{name}" in text for text in texts)] == []


SOURCE = """CREATE TABLE s (id INT NOT NULL{key}) WITH ('connector' = '{connector}', 'topic' = 't',
  'properties.bootstrap.servers' = 'h:1', {formats}{option});
"""
SINK = """CREATE TABLE t (id INT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'jdbc',
  'url' = 'jdbc:postgresql://h/d', 'table-name' = 't', 'username' = 'u', 'password' = 'p'{option});
INSERT INTO t SELECT id FROM s;
"""
FORMATS = {
    "kafka": "'format' = 'json'",
    "upsert-kafka": "'key.format' = 'json', 'value.format' = 'json'",
}
KEY = {"kafka": "", "upsert-kafka": ", PRIMARY KEY (id) NOT ENFORCED"}
VALUES = ("7", "7 s", "true", "false", "x", "https", "at-least-once", "USER_INFO", "")


def script(source: str = "", sink: str = "", connector: str = "kafka") -> str:
    """Two tables and an INSERT, with more options in one of the tables."""
    more = {"connector": connector, "formats": FORMATS[connector], "key": KEY[connector]}
    return SOURCE.format(option=source, **more) + SINK.format(option=sink)


def option(key: str, value: str) -> str:
    return f",\n  '{key}' = '{value}'"


def flink_table(connector: str, prefix: str = "") -> Any:
    return lambda key, value: {
        "a.sql": script(option(f"{prefix}{key}", value), connector=connector)
    }


def flink_changes(key: str, value: str) -> Mapping[str, str]:
    """A table of the format that the option is of."""
    text = script(option(key, value)).replace("'json'", f"'{key.partition('.')[0]}'")
    return {"a.sql": text}


def flink_jdbc(key: str, value: str) -> Mapping[str, str]:
    return {"a.sql": script(sink=option(key, value))}


def flink_setting(key: str, value: str) -> Mapping[str, str]:
    return {"a.sql": f"SET '{key}' = '{value}';\n{script()}"}


def connector_file(key: str, value: str) -> Mapping[str, str]:
    return {
        "a.properties": f"{NEIGHBOURS['justone/flow.properties']}{key}={value}\n",
        "worker.properties": NEIGHBOURS["justone/worker.properties"],
    }


def worker_file(prefix: str = "") -> Any:
    def files(key: str, value: str) -> Mapping[str, str]:
        found = connector_file("tasks.max", "1")
        worker = f"{found['worker.properties']}{prefix}{key}={value}\n"
        return {**found, "worker.properties": worker}

    return files


def pipeline(key: str, value: str) -> Mapping[str, str]:
    begin = '"kafka.topic": "n"'
    text = NEIGHBOURS["pipelines/flow.sql"].replace(begin, f'{begin}, "{key}": "{value}"')
    return {"a.sql": text, "connections.yaml": NEIGHBOURS["pipelines/connections.yaml"]}


def sink_file(base: Mapping[str, str | None]) -> Any:
    """A sink connector of Kafka Connect with one key more."""
    return lambda key, value: {
        "a.properties": connect_files.properties_text({**base, key: value}),
        "worker.properties": connect_files.WORKER,
    }


TABLES: Mapping[str, tuple[Sequence[Key], Any]] = {
    "kafka": (sql.of_connector("kafka"), flink_table("kafka")),
    "upsert-kafka": (sql.of_connector("upsert-kafka"), flink_table("upsert-kafka")),
    "jdbc": (sql.OF_JDBC, flink_jdbc),
    "formats": (sql.FORMATS, flink_table("kafka")),
    "changes": (CHANGE_FORMATS, flink_changes),
    "clients": ((*CLIENT, *PRODUCERS), flink_table("kafka", "properties.")),
    "SET": (SETTINGS, flink_setting),
    "JustOne's connector": (justone.CONNECTOR, connector_file),
    "JustOne's worker": (connect_keys.WORKER, worker_file()),
    "JustOne's consumer": (connect_keys.CONSUMER, worker_file("consumer.")),
    "pipelines": (pipelines.KEYS, pipeline),
    "sinks of Kafka Connect": (sinks.COMMON, sink_file(connect_files.CONFLUENT)),
    "Debezium's sink": (sinks.OF_DEBEZIUM, sink_file(connect_files.DEBEZIUM)),
    "Confluent's sink": (sinks.OF_CONFLUENT, sink_file(connect_files.CONFLUENT)),
    "Iceberg's sink": (sinks.OF_ICEBERG, sink_file(connect_files.ICEBERG)),
}
WITHOUT_EFFECT = [
    pytest.param(one, files, id=f"{table}: {one.name}")
    for table, (keys, files) in TABLES.items()
    for one in keys
    if one.verdict != "used"
]
USED = [
    pytest.param(one, id=f"{table}: {one.name}")
    for table, (keys, _) in TABLES.items()
    for one in keys
    if one.verdict == "used" and not one.name.endswith("*")
]


@pytest.mark.parametrize(("one", "files"), WITHOUT_EFFECT)
def test_a_key_without_effect_is_noted_and_a_refused_one_found(
    one: Key, files: Any, tmp_path: Path
) -> None:
    key = f"{one.name[:-1]}x" if one.name.endswith("*") else one.name
    for value in VALUES:
        for name, text in files(key, value).items():
            (tmp_path / name).write_text(text, encoding="utf-8")
        said = [line for line in as_lines(load(tmp_path)) if key in line]
        notes = {line for line in said if ": note: " in line}
        wrong = {*said} - notes
        if wrong if one.verdict == "refused" else notes or one.says in "".join(wrong):
            return
    pytest.fail(f"nothing is said about {key}")


@pytest.mark.parametrize("one", USED)
def test_a_key_that_counts_is_read(one: Key) -> None:
    ends = {text.strip(".") for text in names_of_dialects() if len(text.strip(".")) > 2}
    name = f".{one.name}"
    assert any(name.endswith(f".{end}") or end.endswith(name) for end in ends)


@cache
def names_of_dialects() -> frozenset[str]:
    """Texts in the code of the languages, without the tables of keys."""
    found: set[str] = set()
    for file in (ENGINE / "languages").rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Key":
                node.args = []
        Reads(found).visit(tree)
    return frozenset(found)
