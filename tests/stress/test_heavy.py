"""Who runs the tests of heavy servers, and that no run of `make test` leaves a marked one out."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import ROOT, heavy

LAWS = "tests/contract/test_laws.py"
KILLED = "tests/connectors/kafka_connect/test_crash.py"


def test_tests_of_one_server_are_run_by_one_process() -> None:
    """Those without one are so by file.

    Not parametrized: a test with the name of a heavy connector in a parameter is one of them.
    """
    groups = {
        "tests/connectors/trino/test_catalogs.py::test_a": "trino",
        "tests/contract/test_laws.py::test_a[nessie-iceberg.after-commit]": "nessie",
        "tests/languages/tableflow/test_catalog.py::test_a": "nessie",
        "tests/connectors/kafka_connect/test_crash.py::test_a[some]": KILLED,
        "tests/contract/test_laws.py::test_a[kafkaConnect-memory-span]": LAWS,
        "tests/connectors/kafka/test_registry.py::test_a": "registry",
        "tests/languages/flink/test_registry.py::test_a": "registry",
    }
    assert {name: heavy.group_of(name) for name in groups} == groups


@pytest.mark.parametrize("mark", heavy.MARKS)
def test_a_marked_test_in_a_file_that_does_not_say_so_is_an_error(
    mark: str, tmp_path: Path
) -> None:
    file = tmp_path / "test_a.py"
    item: Any = SimpleNamespace(
        nodeid="test_a.py::test_a", path=file, get_closest_marker=lambda name: name == mark
    )
    file.write_text(f"@pytest.mark.{mark}\ndef test_a(): ...\n")
    heavy.refuse_hidden([item])
    file.write_text("def test_a(): ...\n")
    with pytest.raises(pytest.UsageError, match=r"into the files of \['test_a.py::test_a'\]"):
        heavy.refuse_hidden([item])


def test_a_test_that_starts_a_heavy_server_beside_all_others_is_an_error() -> None:
    item: Any = SimpleNamespace(
        nodeid="test_a.py::test_a", fixturenames=["trino"], get_closest_marker=lambda _: None
    )
    with pytest.raises(pytest.UsageError, match=r"mark as heavy, .*'trino'.*test_a.py::test_a"):
        heavy.refuse_hidden([item])


def test_the_file_of_laws_has_tests_of_heavy_servers_although_it_does_not_name_the_mark() -> None:
    assert heavy.may_have(ROOT / "tests/contract/test_laws.py", "heavy")
    assert not heavy.may_have(ROOT / "tests/contract/test_laws.py", "alone")
