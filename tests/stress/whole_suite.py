"""Every test there is, the laws on Spark and with every other end: `make test-all`.

The tests marked `heavy` run after the others, and then those marked `alone`. The result goes to
docs/evidence/test-all.md.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from xml.etree import ElementTree as ET

import psutil

from tests import ROOT
from tests.stress.fuzz import commit

RESULT = ROOT / "docs/evidence/test-all.md"
FRESH_COMMITS = 500
PAGE = """# The whole suite

{date}, commit {head}, by `make test-all`: {tests} tests in {minutes:.0f} minutes on {cores} cores,
{testers} at a time. Failed: {failed}.

| folder | tests | their seconds |
|---|---|---|
{lines}
"""


@dataclass(frozen=True)
class Case:
    """One test that ran."""

    folder: str
    name: str
    seconds: float
    passed: bool


def run(arguments: list[str]) -> list[Case]:
    """All tests that these arguments of pytest select; raises when no test ran to its end."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [sys.executable, "-m", "pytest", "--full", f"--junitxml={report}", *arguments]
        subprocess.run(command, cwd=ROOT, check=False)
        return list(_cases(report))


def _cases(report: Path) -> Iterator[Case]:
    for found in ET.parse(report).iter("testcase"):  # noqa: S314 - pytest wrote it
        path = found.attrib["classname"].split(".")
        folder = "/".join(takewhile(lambda part: not part.startswith("test_"), path))
        seconds = float(found.attrib["time"])
        yield Case(folder, found.attrib["name"], seconds, passed=len(found) == 0)


def page(cases: list[Case], testers: int, head: str, seconds: float) -> str:
    """For docs/evidence/test-all.md."""
    failed = [f"`{case.name}`" for case in cases if not case.passed]
    return PAGE.format(
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        head=head,
        tests=len(cases),
        minutes=seconds / 60,
        cores=psutil.cpu_count(),
        testers=testers,
        failed=", ".join(failed) or "none",
        lines="\n".join(_lines(cases)),
    )


def _lines(cases: list[Case]) -> Iterator[str]:
    for folder in sorted({case.folder for case in cases}):
        ran = [case for case in cases if case.folder == folder]
        yield f"| {folder} | {len(ran)} | {sum(case.seconds for case in ran):.0f} |"


def age(text: str, folder: Path) -> str:
    """Says how old the page with this text is, where it is too old to be trusted."""
    head = re.findall(r"commit (\w+)", text)[0]
    command = ["git", "rev-list", "--count", f"{head}..HEAD"]
    counted = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if counted.returncode != 0:
        return f"{RESULT.name} is of commit {head}, which this clone does not have"
    commits = int(counted.stdout)
    if commits <= FRESH_COMMITS:
        return ""
    return f"{RESULT.name} is {commits} commits old (commit {head}): run `make test-all`"


def main() -> None:
    """Runs everything, writes the result down, and fails when a test did."""
    parser = argparse.ArgumentParser(prog="python -m tests.stress.whole_suite", description=__doc__)
    parser.add_argument("--testers", type=int, default=3, help="processes, each with Spark")
    parser.add_argument("--age", action="store_true", help="say only whether the page is too old")
    given = parser.parse_args()
    if given.age:
        sys.stdout.write(age(RESULT.read_text(encoding="utf-8"), ROOT) + "\n")
        return
    head, began = commit(), time.monotonic()
    together = ["--numprocesses", str(given.testers), "--dist", "worksteal"]
    in_groups = ["--numprocesses", "2", "--dist", "loadgroup"]
    cases = [
        *run([*together, "-m", "not heavy and not alone"]),
        *run([*in_groups, "-m", "heavy"]),
        *run(["-m", "alone"]),
    ]
    RESULT.write_text(page(cases, given.testers, head, time.monotonic() - began), encoding="utf-8")
    sys.exit(any(not case.passed for case in cases))


if __name__ == "__main__":
    main()
