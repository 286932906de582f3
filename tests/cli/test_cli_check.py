"""`dataflow check` on the wrong path, and the command line without a command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from dataflow_assets.cli import main

Said = pytest.CaptureFixture[str]
FLOW = """\
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata: {name: a}
spec:
  source: {type: memory-offsets, config: {store: s, topic: t}}
  sink: {type: memory-slice, config: {store: s, table: t}}
"""


def test_a_folder_without_manifests_was_not_checked(tmp_path: Path, capsys: Said) -> None:
    assert main(["check", str(tmp_path)]) == 1
    said = capsys.readouterr()
    kinds = "*.properties, *.sql, *.yaml or *.yml"
    assert said.err == f"{tmp_path}: no {kinds} in this folder: nothing was checked\n"
    assert said.out == "0 flows, 0 findings, 0 notes\n"


def test_in_memory_connectors_are_named_only_where_they_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(FLOW)
    command = [sys.executable, "-m", "dataflow_assets.cli", "check", str(tmp_path)]
    for doubles, code in (("1", 0), ("", 1)):
        env = {**os.environ, "DATAFLOW_DOUBLES": doubles}
        done = subprocess.run(command, env=env, check=False, capture_output=True, text=True)
        assert done.returncode == code
        assert ("unknown source type; allowed: clickhouse, files" in done.stdout) == (not doubles)


def test_a_folder_of_json_files_says_that_they_are_not_read(tmp_path: Path, capsys: Said) -> None:
    (tmp_path / "x.json").write_text("{}")
    assert main(["check", str(tmp_path), "--json"]) == 1
    said = capsys.readouterr()
    assert "nothing was checked (x.json: of *.json only connectors are read" in said.err
    assert json.loads(said.out)["flows"] == []


def test_one_wrong_path_of_two_is_told(tmp_path: Path, capsys: Said) -> None:
    (tmp_path / "a.yaml").write_text(FLOW)
    (tmp_path / "empty").mkdir()
    assert main(["check", str(tmp_path)]) == 0
    assert main(["check", str(tmp_path), str(tmp_path / "empty")]) == 1
    assert "empty: no *.properties" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "# later\n", "---\n---\n"])
def test_a_file_without_a_manifest_is_a_note(tmp_path: Path, capsys: Said, text: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    assert main(["check", str(tmp_path / "a.yaml")]) == 1
    said = capsys.readouterr()
    assert "a.yaml:1:1: note: file: no manifest in this file" in said.out
    assert "nothing was checked" in said.err


def test_strict_fails_for_notes_too(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(FLOW.replace("spec:", "spec:\n  replicas: 0"))
    assert main(["check", str(tmp_path)]) == 0
    assert main(["check", "--strict", str(tmp_path)]) == 1


def test_the_version(capsys: Said) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"dataflow {version('dataflow-assets')}\n"


def test_without_a_command_the_help_is_shown(capsys: Said) -> None:
    assert main([]) == 2
    said = capsys.readouterr().err
    assert "Check, preview, run and inspect data flows." in said
    assert "replay" in said


def test_an_unknown_flow_ends_with_a_full_stop(tmp_path: Path, capsys: Said) -> None:
    (tmp_path / "a.yaml").write_text(FLOW)
    assert main(["run", str(tmp_path), "--flow", "zzz"]) == 1
    assert "no flow zzz. There is: default/a" in capsys.readouterr().err


@pytest.mark.parametrize("line", ['{"id": 1}', '{"id": 1, "name": "x"}'])
def test_a_bare_record_is_told_how_to_be_wrapped(tmp_path: Path, capsys: Said, line: str) -> None:
    (tmp_path / "a.yaml").write_text(FLOW)
    (tmp_path / "in").write_text(line)
    assert main(["preview", str(tmp_path), "--input", str(tmp_path / "in")]) == 1
    said = capsys.readouterr().err
    assert 'this line is a bare record: write it as {"body": RECORD}' in said
    assert "Object contains unknown field" not in said


def test_lines_are_in_colour_on_a_terminal_only(
    tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(FLOW.replace("table: t", "tabel: t"))
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert main(["check", str(file)]) == 1
    plain = capsys.readouterr().out
    assert "\x1b" not in plain
    monkeypatch.setenv("FORCE_COLOR", "1")
    main(["check", str(file)])
    coloured = capsys.readouterr().out
    assert f"\x1b[1m{file}:" in coloured
    assert "\x1b[31m0 flows, " in coloured
    monkeypatch.setenv("NO_COLOR", "1")
    main(["check", str(file)])
    assert capsys.readouterr().out == plain
