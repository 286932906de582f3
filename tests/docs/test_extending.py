"""What docs/extending writes works, and what it asks for is kept by what is there."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import import_module, metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dataflow_assets import languages as packages
from dataflow_assets.contracts import Connector, Source
from dataflow_assets.languages.language import Language, languages
from dataflow_assets.manifests.load import load
from dataflow_assets.records.step import Example, Step
from dataflow_assets.reference.connectors import example
from tests import ROOT
from tests.transforms.test_transforms import test_example as check

PAGE = ROOT / "docs/extending/step.md"


def _step() -> type[Step]:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    module: Any = ModuleType("upper")
    sys.modules["upper"] = module  # where pydantic looks for what the annotations name
    exec(compile(code, str(PAGE), "exec"), vars(module))  # noqa: S102 - the page's own code
    step: type[Step] = module.Upper
    return step


UPPER = _step()


@pytest.mark.parametrize("example", UPPER.examples, ids=lambda example: example.about)
def test_its_examples(example: Example) -> None:
    check(UPPER, example)


CONNECTOR = ROOT / "docs/extending/connector.md"
FOLDERS = sorted(
    folder
    for folder in (ROOT / "dataflow_assets/connectors").iterdir()
    if (folder / "__init__.py").exists()
)
MEMORY = ROOT / "dataflow_assets/connectors/memory"


_POLLED = {
    "source/session.py": "sdk/polling/session.py: PolledSqlSession",
    "source/read.py": "sdk/polling/source.py: PolledSource.read",
}
# Rooms that a connector does without, and what stands for them.
WAIVERS = {
    "clickhouse": _POLLED,
    "files": {"sink/checkpoint.py": "table/commit_log.py: it is a part of each commit's file"},
    "kafka": {"source/read.py": "source/frame.py: Spark's own source reads"},
    "memory": {
        "client.py": "store.py: SQLite is a library",
        "errors.py": "SQLite has no server that fails",
    },
    "mysql": {"source/session.py": _POLLED["source/session.py"]},
    "trino": _POLLED,
}


def _rooms() -> set[str]:
    """The modules that the page's table and its checklist ask for."""
    lines = re.findall(
        r"^\| (`.*?) \||^- \[ \] (.*) for a \w+$", CONNECTOR.read_text(), re.MULTILINE
    )
    return {name for line in lines for name in re.findall(r"`([\w/]+\.py)`", "".join(line))}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda one: one.name)
def test_every_connector_has_the_rooms_of_the_page(folder: Path) -> None:
    assert len(_rooms()) > 10
    needed = {name for name in _rooms() if _has_end(folder, name)}
    missing = {name for name in needed if not (folder / name).exists()}
    assert missing == WAIVERS.get(folder.name, {}).keys()  # a waiver that is not needed fails, too


def _has_end(folder: Path, name: str) -> bool:
    """Whether the connector has the end that a room belongs to; rejected records are a sink's."""
    room = name.partition("/")[0]
    end = {"source": "source", "sink": "sink", "rejected": "sink"}.get(room)
    return end is None or (folder / end).exists()


def test_waivers_are_of_connectors() -> None:
    assert {folder.name for folder in FOLDERS} >= WAIVERS.keys()


def test_the_modules_of_the_page_are_those_of_memory() -> None:
    rooms = re.findall(
        r"^\| `([\w/]+\.py)`(?:, `[\w/]+\.py`)? \|", CONNECTOR.read_text(), re.MULTILINE
    )
    there = {path.relative_to(MEMORY).as_posix() for path in MEMORY.rglob("*.py")}
    modules = {name for name in there if not name.endswith("__init__.py")}
    assert set(rooms) - {"client.py"} == modules - {"store.py"}


def test_what_the_page_names_is_there() -> None:
    text = CONNECTOR.read_text()
    shared = MEMORY.parents[1] / "sdk" / "sink"
    files = [*MEMORY.rglob("*.py"), *shared.rglob("*.py")]
    code = "\n".join(path.read_text() for path in files)
    for name, method in re.findall(r"`(Memory\w+|\w+Session|Slice\w+)\.?(\w*)`", text):
        assert f"class {name}(" in code
        assert f"def {method}" in code


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda one: one.name)
def test_every_connector_keeps_the_checklist(folder: Path) -> None:
    """Of a folder: the classes that it names, their guarantees, and its failpoints.

    Systems that differ in their address only may share a folder, which is named for one of them.
    """
    module = import_module(f"dataflow_assets.connectors.{folder.name}")
    code = "".join(path.read_text() for path in folder.rglob("*.py"))
    assert re.search(r"\breach\(|\bPolledSource\b", code)  # which has those of reading
    declarations = [getattr(module, name) for name in module.__all__]
    ends = [one for one in declarations if issubclass(one, Connector) and folder != MEMORY]
    named = {re.sub("[A-Z]", lambda hit: f"_{hit[0].lower()}", end.type) for end in ends}
    assert folder.name in named or folder == MEMORY
    for declared in ends:
        assert declared.guarantee.endswith(".")
        end = "source" if issubclass(declared, Source) else "sink"
        assert example(end, declared.type).exists()
        assert not issubclass(declared, Source) or declared.metadata_keys


def test_what_files_took_is_counted() -> None:
    (files, lines), *_ = re.findall(r"(\d+) files, about ([\d,]+) lines", CONNECTOR.read_text())
    there = [path.read_text() for path in (MEMORY.parent / "files").rglob("*.py")]
    assert int(files) == len(there)
    assert int(lines.replace(",", "")) == pytest.approx(sum(map(_lines, there)), rel=0.05)


def _lines(text: str) -> int:
    return text.count("\n")


LANGUAGE = ROOT / "docs/extending/language.md"
PACKAGES = ROOT / "dataflow_assets/languages"


def test_the_page_has_every_member_of_a_language() -> None:
    page = LANGUAGE.read_text()
    members = {name for name in vars(Language) if not name.startswith("_")}
    members |= {name for name in Language.__annotations__ if not name.startswith("_")}
    rows = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert rows == members


@pytest.fixture
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of manifests, where the page's own language is a package beside the others."""
    (code,) = re.findall(r"```python\n(.*?)```", LANGUAGE.read_text(), re.DOTALL)
    package, folder = tmp_path / "packages/copies", tmp_path / "flows"
    package.mkdir(parents=True)
    folder.mkdir()
    (package / "__init__.py").touch()
    (package / "language.py").write_text(code)
    monkeypatch.setattr(packages, "__path__", [*packages.__path__, str(package.parent)])
    languages.cache_clear()
    yield folder
    languages.cache_clear()
    for name in [name for name in sys.modules if name.startswith(f"{packages.__name__}.copies")]:
        del sys.modules[name]


def test_the_smallest_language_is_found_and_makes_flows(copies: Path) -> None:
    (copies / "a.yaml").write_text("brokers: ['k:1']\ncopies:\n  a: a2\n  b: b2\n")
    found = load(copies)
    assert found.findings == ()
    assert [(one.id, one.language, one.line) for one in found.flows] == [
        ("default/a-to-a2", "copies", 3),
        ("default/b-to-b2", "copies", 4),
    ]
    assert found.flows[0].branches[0].address.name == "a2"
    assert "| `brokers` |" in languages()["copies"].reference()


def test_mistakes_of_the_smallest_language_are_findings_at_its_own_keys(copies: Path) -> None:
    (copies / "a.yaml").write_text("brokers: ['k:1']\ncopies:\n  a: a2\n  b: b2\n")
    (copies / "b.yaml").write_text("brokers: ['k:1']\ncopies: {a: a2}\n")
    (copies / "c.yaml").write_text("copies: {c: c2}\nbroker: ['k:1']\n")
    found = load(copies)
    assert [one.id for one in found.flows] == ["default/b-to-b2"]
    assert [(Path(one.file).name, one.line, one.path) for one in found.findings] == [
        ("a.yaml", 3, "copies.a"),
        ("b.yaml", 2, "copies.a"),
        ("c.yaml", 1, "brokers"),
        ("c.yaml", 2, "broker"),
    ]


def test_files_that_the_page_names_are_there() -> None:
    named = re.findall(r"`((?:\w+/)+\w+\.py)`", LANGUAGE.read_text())
    assert len(named) > 7
    places = (ROOT, ROOT / "dataflow_assets", PACKAGES, *PACKAGES.iterdir())
    assert [one for one in named if not any((place / one).exists() for place in places)] == []


@pytest.mark.parametrize("language", languages().values(), ids=lambda one: one.name)
def test_every_language_keeps_the_rules(language: Language) -> None:
    """Its page exists, its connectors are extras, and importing its package imports no reader."""
    assert (ROOT / f"docs/reference/{language.name}.md").exists()
    assert language.suffixes <= {".yaml", ".json", ".properties", ".sql"}
    extras = metadata.metadata("dataflow-assets").get_all("Provides-Extra") or []
    assert {*language.connectors} <= {*extras}
    package = Path(sys.modules[type(language).__module__].__file__ or "").parent
    assert not (package / "__init__.py").read_text().count("import")
