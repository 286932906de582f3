"""Every decision in docs/compatibility.md has a test; some of them stand here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pytest
from pydantic import ValidationError

from dataflow_assets import registry
from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.chain import Chain, Transformation
from dataflow_assets.records.paths.path import Path as FieldPath
from dataflow_assets.records.record import Record, encode, parse
from dataflow_assets.records.step import Context
from tests import ROOT

PAGE = ROOT / "docs/compatibility.md"
HEAD = ["Topic", "DataFlow Operator", "Here", "Example", "Test"]
CONTEXT = Context(datetime(2026, 7, 20, 10, tzinfo=UTC))

Line = tuple[int, list[str]]


def _rows() -> Iterator[Line]:
    """Each decision with its line; a table of another form is none of decisions."""
    for number, line in enumerate(PAGE.read_text().splitlines(), 1):
        if line.startswith("|") and not line.startswith("|---"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if cells != HEAD:
                yield number, cells


def _named(cell: str) -> list[str]:
    """The code spans of a cell."""
    return [match[1] for match in re.findall(r"(`+)(.+?)\1(?!`)", cell)]


@cache
def _functions(file: str) -> frozenset[str]:
    path = ROOT / file
    found = ast.walk(ast.parse(path.read_text())) if path.is_file() else ()
    return frozenset(node.name for node in found if isinstance(node, ast.FunctionDef))


def _exists(test: str) -> bool:
    file, found, name = test.partition("::")
    if found:
        return name.startswith("test_") and name in _functions(file)
    step, _, about = test.partition(": ")
    known = registry.steps().get(step)
    return known is not None and any(one.about == about for one in known.examples)


@pytest.mark.parametrize(("line", "cells"), [pytest.param(*row, id=str(row[0])) for row in _rows()])
def test_each_decision_names_its_tests(line: int, cells: list[str]) -> None:
    assert len(cells) == len(HEAD), f"line {line}: a | inside a cell is written \\|"
    assert all(cells), f"line {line}: an empty cell"
    tests = _named(cells[-1])
    assert tests, f"line {line}: no test"
    assert [test for test in tests if not _exists(test)] == [], f"line {line}: no such test"


def test_the_page_is_read() -> None:
    assert len(list(_rows())) > 80
    assert not _exists("tests/manifests/test_compatibility.py::test_nothing")
    assert not _exists("select: nothing of the kind")


# Decisions that no other test holds


def _chain(*steps: tuple[str, dict[str, Any]]) -> Chain:
    known = registry.steps()
    used = [known[name].model_validate(config) for name, config in steps]
    return Chain([Transformation(step) for step in used], CONTEXT)


def _record(body: str, **metadata: Any) -> Record:
    return Record(parse(body.encode()), metadata)


def test_keys_and_signs_stay() -> None:
    chain = _chain(("snakeCase", {}), ("select", {"fields": ["z", "a"]}))
    (found,) = chain(_record('{"z":"<b> & </b>","a":1,"c":2}'))
    assert encode(found.body) == b'{"z":"<b> & </b>","a":1}'


def test_minus_zero() -> None:
    assert encode(parse(b"[-0,-0.0]")) == b"[0,-0.0]"


def test_of_a_record_that_becomes_several_all_or_none_pass() -> None:
    chain = _chain(("flatten", {"field": "xs"}), ("cast", {"spec": {"n": "int64"}}))
    assert len(chain(_record('{"xs":[{"n":"1"},{"n":"2"}]}'))) == 2
    with pytest.raises(RejectedRecord):
        chain(_record('{"xs":[{"n":"1"},{"n":"x"}]}'))


def test_queries_compare_numbers_exactly() -> None:
    """As doubles the two ids are the same number."""
    body = parse(b'[{"id":9007199254740992,"a":1},{"id":9007199254740993,"a":2}]')
    assert FieldPath.parse("#(id==9007199254740993).a").getter()(body) == 2


def test_a_path_that_only_reads_cannot_be_flattened() -> None:
    with pytest.raises(ValidationError, match="cannot be written"):
        _chain(("flatten", {"field": "a.#.xs"}))


def test_blanks_in_a_mapping_of_headers() -> None:
    chain = _chain(("headersToPayload", {"mappings": [" X-Id : meta.id "]}))
    (found,) = chain(_record("{}", headers={"X-Id": "9"}))
    assert found.body == {"meta": {"id": "9"}}


def test_one_now_in_a_micro_batch() -> None:
    chain = _chain(("timestamp", {}), ("insertField", {"fields": {"at": "${now}"}}))
    bodies = [chain(_record("{}"))[0].body for _ in range(2)]
    assert bodies == [{"created_at": "2026-07-20T10:00:00Z", "at": "2026-07-20T10:00:00Z"}] * 2


def test_one_condition_stands_once_in_a_router() -> None:
    route = {"condition": "$.a", "sink": {"type": "x", "config": {"a": 1}}}
    with pytest.raises(ValidationError, match="only the first could win"):
        _chain(("router", {"routes": [route, route]}))
