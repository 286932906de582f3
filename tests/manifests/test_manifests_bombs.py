"""Files made to cost time or memory: each is refused with a sentence, within a bound of work."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dataflow_assets.languages.common.documents import parse
from dataflow_assets.languages.common.yaml_bounds import MOST_DOCUMENTS
from dataflow_assets.manifests.file_reading import MOST_BYTES, MOST_ENTRIES
from dataflow_assets.manifests.load import load
from tests import ROOT

pytestmark = pytest.mark.alone

LONGEST = 2.0  # seconds of the processor
SIZE = MOST_BYTES - 1_000
HEADER = """\
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata: {name: a}
spec:
"""


@pytest.fixture(scope="module", autouse=True)
def loaded_once() -> Iterator[None]:
    """Measured is neither what a first manifest imports, nor walks over the suite's objects."""
    load(ROOT / "examples")
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def merges(lines: int, times: int = 3) -> str:
    """Each line merges the one before it so many times."""
    text = "a0: &a0 {x: 1}\n"
    for number in range(1, lines):
        text += f"a{number}: &a{number} {{<<: [{', '.join([f'*a{number - 1}'] * times)}]}}\n"
    return text


def aliases(lines: int) -> str:
    """Each line repeats the one before it ten times."""
    text = "a0: &a0 [x]\n"
    for number in range(1, lines):
        text += f"a{number}: &a{number} [{', '.join([f'*a{number - 1}'] * 10)}]\n"
    return text


def nested_merges(lines: int) -> str:
    """The same with each merge in a block of its own."""
    text = "a0: &a0 {x: 1}\n"
    for number in range(1, lines):
        text += f"a{number}: &a{number}\n  <<: [*a{number - 1}, *a{number - 1}, *a{number - 1}]\n"
    return text


GROWS = "grows without end"
BOMBS = {
    "merges": (merges(25), GROWS),
    "merges in blocks": (nested_merges(25), GROWS),
    "merges of nothing": (merges(25).replace("{x: 1}", "{}"), GROWS),
    "aliases": (aliases(9), GROWS),
    "many small bombs": ("---\n".join([aliases(5)] * 300), GROWS),
    "documents": ("---\na\n" * 85_000, f"more than {MOST_DOCUMENTS} documents"),
    "documents on their line": ("--- a\n" * 85_000, f"more than {MOST_DOCUMENTS} documents"),
    "a list": ("- a\n" * (SIZE // 4), "too large"),
    "a list of nothing": ("-\n" * (SIZE // 2), "too large"),
    "keys without values": ("? a\n" * (SIZE // 4), "too large"),
    "brackets": ("[" * SIZE, "nested too deeply"),
    "braces": ("{" * SIZE, "nested too deeply"),
    "brackets in many documents": ("---\n[[[[[[[[[[" * 10 + "[" * 40_000, "not valid YAML"),
    "dashes": ("- " * (SIZE // 2), "nested too deeply"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_at_once(name: str) -> None:
    text, expected = BOMBS[name]
    begun = time.thread_time()
    _, findings = parse(text, "f.yaml")
    assert time.thread_time() - begun < LONGEST
    assert expected in findings[-1].message or expected in findings[0].message
    assert len(findings) <= 12


def test_merge_keys_as_people_use_them_still_work() -> None:
    text = "a: &a {x: 1, y: 2}\nb: &b {<<: *a, y: 3}\nc: {<<: [*b, *a], z: 4}\n"
    (document,), findings = parse(text, "f.yaml")
    assert findings == []
    assert document.value["c"] == {"z": 4, "y": 3, "x": 1}


SLOW = {
    "unknown keys": HEADER + "".join(f"  foo{number}: 1\n" for number in range(8_000)),
    "wrong entries of a list": (
        f"{HEADER}  source: {{type: kafka, config: {{topic: t, brokers: [{'1, ' * 8_000}]}}}}\n"
    ),
    "flows of one name": "---\n".join([f"{HEADER}  replicas: 1\n"] * 1_000),
    "a condition": (
        f"{HEADER}  transformations:\n"
        f'  - {{type: filter, config: {{condition: "{"$.a == 1 || " * 30_000}$.b"}}}}\n'
    ),
    "a regular expression": (
        f"{HEADER}  transformations:\n"
        f"  - {{type: filter, config: {{condition: \"$.a =~ '{'(a|b)*' * 50_000}'\"}}}}\n"
    ),
    "a connection string": (
        f"{HEADER}  sink: {{type: postgresql, config: {{table: t, connectionString: "
        f"'postgresql://{'a@' * 200_000}h/d'}}}}\n"
    ),
}


@pytest.mark.parametrize("name", SLOW)
def test_checking_what_was_read_takes_no_time_either(tmp_path: Path, name: str) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(SLOW[name])
    begun = time.thread_time()
    loaded = load(file)
    assert time.thread_time() - begun < LONGEST
    assert loaded.findings
    assert all(len(str(finding)) < 1_000 for finding in loaded.findings)


def test_many_mistakes_of_one_block_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SLOW["unknown keys"])
    said = [finding.message for finding in load(tmp_path).findings]
    assert sum(message.startswith("unknown key") for message in said) == 98
    assert "and 7902 more mistakes in this block" in said


def test_copies_of_a_flow_name_three_others(tmp_path: Path) -> None:
    text = (
        f"{HEADER}  source: {{type: memory-offsets, config: {{store: s, topic: t}}}}\n"
        "  sink: {type: memory-slice, config: {store: s, table: x}}\n"
    )
    for number in range(24):
        (tmp_path / f"{number:02}.yaml").write_text(text)
    findings = load(tmp_path).findings
    assert len(findings) == 24
    assert findings[0].message == (
        f"duplicate flow name default/a, also defined in {tmp_path}/01.yaml:1, "
        f"{tmp_path}/02.yaml:1, {tmp_path}/03.yaml:1 and 20 more"
    )


def test_a_file_with_as_many_entries_as_may_be_is_read() -> None:
    text = "a:\n" + "".join("- b: 1\n" for _ in range(MOST_ENTRIES - 1))
    documents, findings = parse(text, "a.yaml")
    assert len(documents[0].value["a"]) == MOST_ENTRIES - 1
    assert not findings
