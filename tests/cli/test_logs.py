"""What the engine logs while a command works."""

from __future__ import annotations

import logging

import pytest

from dataflow_assets.cli.logs import show_log

engine = logging.getLogger("dataflow_assets.runs")


@pytest.mark.parametrize(
    ("verbose", "shown"), [(False, ["two"]), (True, ["one", "two"])], ids=["plain", "verbose"]
)
def test_only_while_the_command_works(verbose: bool, shown: list[str]) -> None:
    lines = list[str]()
    before = logging.getLogger("dataflow_assets").level
    with show_log(lines.append, (), verbose):
        engine.info("one")
        engine.warning("two")
    engine.warning("three")
    assert (lines, logging.getLogger("dataflow_assets").level) == (shown, before)
