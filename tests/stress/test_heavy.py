"""No run of `make test` leaves a marked test out, or starts a heavy server in each process."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import ROOT, heavy


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
