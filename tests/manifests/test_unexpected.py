"""A mistake of the program while it reads a file: a finding of that file, the others go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import pytest

from dataflow_assets.languages.dataflow import document as dataflow
from dataflow_assets.languages.justone.reader import read as justone
from dataflow_assets.languages.pipelines.reader import read as pipelines
from dataflow_assets.languages.sql import language
from dataflow_assets.languages.sql.reader import read as sql
from dataflow_assets.languages.tableflow import document as tableflow
from dataflow_assets.location.definitions import build
from dataflow_assets.manifests import file_reading, load, unexpected, watched
from dataflow_assets.manifests.check import as_lines
from dataflow_assets.manifests.watched import Watched
from tests.stress.fuzz_manifests import NEIGHBOURS

DOTTED = """CREATE TABLE s (id INT) WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'json',
  'properties.bootstrap.servers' = 'kafka:9092');
CREATE TABLE t (id INT) WITH ('connector' = '{connector}', 'url' = 'x://h/d',
  '{option}' = 'true', 'warehouse' = 'w');
INSERT INTO t SELECT id FROM s;
"""
READERS: dict[str, tuple[Any, str, int]] = {
    "dataflow": (dataflow, "read", 1),
    "tableflow": (tableflow, "read", 1),
    "justone": (justone, "flows", 1),
    "pipelines": (pipelines, "_flow", 2),
    "sql": (sql, "_flows_of", 6),
}
"""By the folder of a neighbour what throws, and the line that the finding is at."""


@pytest.fixture
def neighbours(tmp_path: Path) -> Path:
    for name, text in NEIGHBOURS.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    file_reading._parse.cache_clear()
    return tmp_path


def thrown(*_: Any, **__: Any) -> NoReturn:
    raise IndexError("tuple index out of range: pg-password-17")


@pytest.mark.parametrize("language", READERS)
def test_what_is_thrown_is_a_finding_of_the_file(
    language: str, neighbours: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, function, line = READERS[language]
    monkeypatch.setattr(module, function, thrown)
    loaded = Watched([neighbours])()
    (found,) = loaded.findings
    assert (Path(found.file).parent.name, found.line) == (language, line)
    assert "cannot be read: unexpected IndexError" in found.message
    assert "pg-password-17" not in "".join(as_lines(loaded))
    alive = {flow.file.parent.name for flow in loaded.flows}
    assert alive == {name.split("/")[0] for name in NEIGHBOURS} - {language}


def test_the_code_location_has_the_other_flows(
    neighbours: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "_flows_of", thrown)
    built = build([neighbours])
    jobs = {job.name for job in built.resolve_all_job_defs()}
    assert {"neighbour_dataflow_job", "neighbour_pipeline_job"} < jobs


@pytest.mark.parametrize("check", ["missing_keys", "foreign", "_without_files"])
def test_what_a_check_throws_about_a_flow_is_a_finding_of_its_file(
    check: str, neighbours: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = getattr(load, check)

    def throws(flows: list[Any], *more: Any) -> Any:
        if flows[0][0].name == "neighbour-dataflow":
            thrown()
        return real(flows, *more)

    monkeypatch.setattr(load, check, throws)
    loaded = load.load(neighbours)
    (found,) = loaded.findings
    assert Path(found.file).parent.name == "dataflow"
    assert len(loaded.flows) == len({name.split("/")[0] for name in NEIGHBOURS}) - 1


@pytest.mark.parametrize("connector", ["iceberg", "nessie", "postgresql", "clickhouse", "trino"])
@pytest.mark.parametrize(
    "option", ["s3.endpoint", "write.upsert.enabled", "table.x", "basicAuth.x.y", ".", ""]
)
def test_an_option_with_a_dot_is_a_finding_at_its_line(
    connector: str, option: str, tmp_path: Path
) -> None:
    (tmp_path / "a.sql").write_text(DOTTED.format(connector=connector, option=option))
    loaded = load.load(tmp_path)
    assert not [one for one in loaded.findings if "unexpected" in one.message]
    assert 4 in {one.line for one in loaded.findings}


def test_a_file_that_goes_while_the_folder_is_looked_at(
    neighbours: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.stat

    def stat(self: Path, **more: Any) -> Any:
        if self.suffix == ".properties" and not more:
            raise FileNotFoundError(self)
        return real(self, **more)

    monkeypatch.setattr(Path, "stat", stat)
    assert watched.fingerprint([neighbours])


def test_the_message_says_where_and_no_value() -> None:
    try:
        language.read_file(None, ())  # type: ignore[arg-type]
    except AttributeError as error:
        said = unexpected.message(error)
    assert "unexpected AttributeError in languages/sql/language.py:" in said
