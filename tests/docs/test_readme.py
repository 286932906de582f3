"""What the README says about the command line is what the command line takes."""

from __future__ import annotations

import argparse

import pytest

from dataflow_assets.cli.parser import command_line
from tests import ROOT

README = ROOT / "README.md"


def commands() -> dict[str, argparse.ArgumentParser]:
    """Every command with its own parser."""
    (several,) = [a for a in command_line()._actions if isinstance(a, argparse._SubParsersAction)]
    return dict(several.choices)


def row(command: str) -> str:
    """The line of the table about a command."""
    lines = README.read_text(encoding="utf-8").splitlines()
    (found,) = [line for line in lines if line.startswith("|") and f"`dataflow {command}" in line]
    return found


@pytest.mark.parametrize("command", sorted(commands().keys() - {"servers", "demo"}))
def test_every_option_is_in_the_table(command: str) -> None:
    options = [o for a in commands()[command]._actions for o in a.option_strings]
    common = {"-h", "--help", "--verbose"}
    assert [
        option for option in options if option not in common and option not in row(command)
    ] == []


@pytest.mark.parametrize(
    "command", sorted(commands().keys() - {"servers", "demo", "schema", "k8s"})
)
def test_several_paths_are_shown_where_several_are_taken(command: str) -> None:
    (paths,) = [action for action in commands()[command]._actions if action.dest == "paths"]
    assert ("PATH..." in row(command)) == (paths.nargs == "+")


def test_the_examples_are_those_that_there_are() -> None:
    text = README.read_text(encoding="utf-8")
    assert "each pair" not in text
    for system in ("postgresql", "clickhouse", "iceberg"):
        assert list((README.parent / "examples").glob(f"{system}-to-*.yaml"))
