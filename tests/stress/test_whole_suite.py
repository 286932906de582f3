"""The evidence of the whole suite says when it is too old."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.stress.whole_suite import FRESH_COMMITS, age


@pytest.mark.parametrize(
    ("commits", "old"), [(0, False), (FRESH_COMMITS, False), (FRESH_COMMITS + 1, True)]
)
def test_a_page_says_how_old_it_is_where_it_is_too_old(
    tmp_path: Path, commits: int, *, old: bool
) -> None:
    _make_history(tmp_path, 1 + commits)
    first = _git(tmp_path, "rev-list", "--max-parents=0", "HEAD")
    said = f"test-all.md is {commits} commits old (commit {first}): run `make test-all`"
    assert age(f"2026-11-23, commit {first}, by `make test-all`", tmp_path) == (said if old else "")


def test_a_page_of_a_commit_that_the_clone_does_not_have_says_so(tmp_path: Path) -> None:
    _make_history(tmp_path, 1)
    assert "which this clone does not have" in age("commit 0123456789abcdef, by", tmp_path)


def _make_history(folder: Path, commits: int) -> None:
    _git(folder, "init", "--quiet")
    commit = "commit HEAD\ncommitter A <a@example.org> 1700000000 +0000\ndata 0\n\n"
    _git(folder, "fast-import", "--quiet", text=commit * commits)


def _git(folder: Path, *arguments: str, text: str = "") -> str:
    ran = subprocess.run(
        ["git", *arguments], cwd=folder, input=text, capture_output=True, text=True, check=True
    )
    return ran.stdout.strip()
