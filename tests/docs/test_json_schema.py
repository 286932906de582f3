"""Editors see in a manifest what `dataflow check` sees, as far as a JSON Schema can tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from dataflow_assets.cli import main
from dataflow_assets.languages.common.documents import parse
from dataflow_assets.manifests.load import load
from dataflow_assets.reference import FOLDER
from dataflow_assets.reference.json_schema import EDITOR_LINE, NAME, schema
from tests.manifests.test_manifests_mistakes import MISTAKES, QUIET

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
NAMES = "connections.yaml"
OF_DEMOS = [one for one in EXAMPLES.glob("demo*/*.yaml") if one.name != NAMES]
SHOWN = [*EXAMPLES.glob("*.yaml"), *OF_DEMOS]
TABLEFLOW = EXAMPLES / "tableflow" / "tableflow.yaml"
MANIFESTS = sorted([*SHOWN, *(EXAMPLES / "seeds").glob("*.yaml"), TABLEFLOW])
BEYOND = {
    # one of two keys, and other manifests
    "an empty topic",
    "no topic",
    "one condition for two sinks",
    "one name for two",
    # YAML itself
    "indentation",
    "a key twice",
    "a tab",
    "an exclamation mark",
    "an exclamation mark and a space",
    "an asterisk",
    "quotes inside quotes",
    "quotes inside quotes of a block",
    "single quotes inside single quotes",
    "no dashes between two",
    "a template",
    "a template as a value",
    "a sign in a password that begins a comment",
    "a column without its type",  # the reader of this test leaves keys without a value out
    # the grammar of a text
    "an open quote",
    "any depth",
    "two fields",
    "a broken pattern",
    "a broken number",
    "a duration without end",
    "a time-out without end",
    "jdbc",
    "a port of ClickHouse that is too high",
    "a port that is none",
    "a port that is too high",
    "an equals sign at the end of a very long condition",
    "a variable",
    "a name with an umlaut",
    "a Secret's data with an umlaut",
    "a zone",
    "a partition",
    "four rules at once",
    "two rules at once",
    "a topic with a slash",
    "a topic with typographic quotes",
    "a pattern of topics",
    "a topic of dots",
    "one equals sign",
    "three equals signs",
    "no space",
    "and",
    "or",
    "not",
    "IN",
    "LIKE",
    "is null",
    "between",
    "a function in a condition",
    # the environment, and what JSON has no word for
    "a folder outside",
    "a million with an exponent",
    "a source that is nowhere, and a sink",
    # rules between fields, or between documents
    "an engine",
    "SASL_SSL alone",
    "plain text in a Secret's data",
    "its own table",
    "its own topic",
    "its own source as error sink",
}


@pytest.fixture(scope="module")
def validator() -> Any:
    return jsonschema_rs.validator_for(schema())


def documents(text: str) -> list[Any]:
    parsed, findings = parse(text, "a.yaml")
    assert not findings
    return [document.get() for document in parsed]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_an_example_is_valid_unless_check_refuses_it(validator: Any, path: Path) -> None:
    valid = all(validator.is_valid(found) for found in documents(path.read_text()))
    refused = [one for one in load(path).findings if "not supported yet" in one.message]
    assert valid is not bool(refused)


@pytest.mark.parametrize("name", sorted(set(MISTAKES) - BEYOND))
def test_a_mistake_is_marked_in_the_editor(validator: Any, name: str) -> None:
    text, _ = MISTAKES[name]
    assert not all(validator.is_valid(found) for found in documents(text))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("source_format: json", "source_format: protobuf"),
        ("source_topic:", "source_topik:"),
        ("schema_mode: inline", "schema_mode: other"),
        ("id: 1}", "id: one}"),
        ("port: 9092", "port: 99092"),
        ("use_tls: true", "use_tls: maybe"),
    ],
)
def test_a_mistake_in_a_file_of_tableflow_is_marked(validator: Any, right: str, wrong: str) -> None:
    text = TABLEFLOW.read_text()
    assert right in text
    found = list(validator.iter_errors(documents(text.replace(right, wrong, 1))[0]))
    assert found
    assert all({"tables", "source_clusters"} & set(one.instance_path) for one in found)


@pytest.mark.parametrize("name", QUIET)
def test_what_is_right_is_not_marked(validator: Any, name: str) -> None:
    assert all(validator.is_valid(found) for found in documents(QUIET[name]))


def test_a_refused_field_says_why(validator: Any) -> None:
    text = QUIET["what has an effect"].replace("type: kafka", "type: iceberg")
    (found,) = documents(text.replace("config: {", "config: {query: select 1, ", 1))
    assert not validator.is_valid(found)
    query = schema()["$defs"]["IcebergSource"]["properties"]["query"]
    assert query["errorMessage"].startswith("not supported yet: the DataFlow Operator accepts")


def test_keys_have_their_texts() -> None:
    topic = schema()["$defs"]["KafkaSource"]["properties"]["topic"]
    assert topic["description"]
    assert "title" not in topic


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: path.name)
def test_an_example_says_where_its_schema_is(path: Path) -> None:
    first = path.read_text().splitlines()[0]
    assert first.startswith(EDITOR_LINE)
    assert (path.parent / first.removeprefix(EDITOR_LINE)).resolve() == (FOLDER / NAME).resolve()


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((FOLDER / NAME).read_text())
