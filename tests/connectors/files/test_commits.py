"""What a commit of the sink leaves alone: files of others, removed files, what a crash has left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dataflow_assets.connectors.files import FilesSink
from dataflow_assets.connectors.files.table.commit_log import LOGS, STAGED, head, name_of
from dataflow_assets.contracts import Run, Target
from dataflow_assets.errors import PermanentError
from dataflow_assets.manifests.load import load
from dataflow_assets.testing import choose
from tests.connectors.files import driver
from tests.connectors.files.flows import Ends
from tests.drained import drain_file


def test_a_truncate_takes_out_what_it_names_once(place: driver.Config, tmp_path: Path) -> None:
    """Also where nothing was committed since: the next run finds it as the newest version."""
    one, other = Ends(place, tmp_path, "one"), Ends(place, tmp_path, "other")
    one.source.put("a.jsonl", b'{"id": 1}\n')
    one.sink.put("eu/below.jsonl", b'{"id": 0}\n')
    drain_file(one.manifest)
    one.source.delete("a.jsonl")
    drain_file(one.manifest, "truncate")
    assert one.stored == [0]
    other.source.put("b.jsonl", b'{"id": 2}\n')
    drain_file(other.manifest)
    for _ in range(2):
        drain_file(one.manifest)
        assert one.stored == [2, 0]


def test_a_file_that_was_written_anew_under_a_name_that_was_taken_out(
    place: driver.Config, tmp_path: Path
) -> None:
    ends = Ends(place, tmp_path, "one")
    ends.sink.put("mine.jsonl", b'{"id": 1}\n')
    drain_file(ends.manifest)
    drain_file(ends.manifest, "truncate")
    assert ends.stored == []
    ends.sink.put("mine.jsonl", b'{"id": 12}\n')
    drain_file(ends.manifest)
    assert ends.stored == [12]


@pytest.mark.parametrize("taken", ["rows", "rejected"])
def test_a_committed_file_may_be_taken_away(
    taken: str, place: driver.Config, tmp_path: Path
) -> None:
    """A consumer moves away what it has read; a person deletes an entry."""
    ends = Ends(place, tmp_path, "one", onRejected="table")
    for number in (1, 2, 3):
        ends.source.put(f"{number}.jsonl", b'{"id": %d}\nno json\n' % number)
        drain_file(ends.manifest)
        found = ends.sink.files("_rejected") if taken == "rejected" else ends.visible
        assert len(found) == 1
        for one in found:
            ends.sink.delete(one.name)
    drain_file(ends.manifest)
    drain_file(ends.manifest, "truncate")


@pytest.mark.parametrize("name", [".5d0c", "000000000009.json.part", "notes.txt"])
def test_what_is_no_version_is_left_alone(name: str, place: driver.Config, tmp_path: Path) -> None:
    ends = Ends(place, tmp_path, "one")
    flow = choose(load(Path(ends.manifest)), None)
    target = flow.target(flow.branches[0])
    ends.sink.put(f"{LOGS}/{name_of(target)}/{name}", b"")
    for number in (1, 2):
        ends.source.put(f"{number}.jsonl", b'{"id": %d}\n' % number)
        drain_file(ends.manifest)
    assert ends.stored == [1, 2]


def test_a_driver_that_clears_late_leaves_files_of_its_successor(
    place: driver.Config, tmp_path: Path
) -> None:
    """It has taken its epoch, and another one has taken the next, with tasks that write."""
    ends = Ends(place, tmp_path, "one")
    flow = choose(load(Path(ends.manifest)), None)
    branch = flow.branches[0]
    for _ in range(3):
        branch.sink.open(flow.target(branch), Run()).close()
    newest = head(ends.sink, flow.target(branch))
    assert newest is not None
    epoch, below = newest.state.checkpoint.epoch, f"{STAGED}/{name_of(flow.target(branch))}"
    for written in (epoch - 1, epoch + 1, epoch + 2):
        ends.sink.put(f"{below}/{written}-0a.jsonl", b"{}\n")
    branch.sink.open(flow.target(branch), Run()).close()
    left = [one.name.rpartition("/")[2] for one in ends.sink.files(below)]
    assert left == [f"{epoch + 1}-0a.jsonl", f"{epoch + 2}-0a.jsonl"]


@pytest.mark.parametrize("place", ["disk"], indirect=True)
def test_a_put_that_is_cut_off_leaves_nothing_under_its_name(
    place: driver.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = driver.folder(place)
    folder.put("kept", b"whole")

    def crash(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", crash)
    for put in (folder.put, folder.put_new):
        for name in ("kept", "_dataflow/log/x/000000000001.json"):
            with pytest.raises(KeyboardInterrupt):
                put(name, b"half")
    seen = [one.name for one in folder.files() if not one.name.startswith("_dataflow/unfinished/")]
    assert seen == ["kept"]
    assert folder.read("kept") == b"whole"


@pytest.mark.parametrize("body", [b'{"id": 1, "name": "\xff"}', b'{"id": 1, "id": 2}', b"", b"no"])
def test_what_is_no_line(body: bytes, tmp_path: Path) -> None:
    ends = Ends(driver.on_disk(tmp_path / "folder"), tmp_path, "one", onRejected="table")
    ends.source.put("a.jsonl", body + b'\n{"id": 3}\n')
    drain_file(ends.manifest)
    assert ends.stored == [3]
    assert len(driver.lines(ends.sink, rejected=True)) == (1 if body else 0)


def test_no_folder_of_a_sink_lies_in_that_of_another(place: driver.Config) -> None:
    """In manifests that were not checked together."""
    target = Target("ns/f", "files:disk:a", "h", "t")

    def at(path: str) -> FilesSink:
        return FilesSink.model_validate({**place, "path": f"{place['path']}/{path}"})

    at("a/b").open(target, Run()).close()
    for path, reason in (("a/b/c", r"lies in \S+/a/b,"), ("a", r"lies around \S+/a/b,")):
        with pytest.raises(PermanentError, match=reason):
            at(path).open(target, Run())
    for path in ("a/b", "a/b/errors"):
        with pytest.raises(PermanentError, match=r"(which|what) a files sink writes to"):
            at(path).error_store().prepare()
    for path in ("a/b", "a/bc"):
        at(path).open(target, Run()).close()
    at("a/errors").error_store().prepare()


@pytest.mark.parametrize("line", [b'{"error": ', b'{"id": 1}', b'{"error": {"flow": "ns/f"}}'])
def test_a_line_that_is_no_error_record_is_named(line: bytes, tmp_path: Path) -> None:
    """It may have been an entry: a replay that passed over it would be silent about a loss."""
    ends = Ends(driver.on_disk(tmp_path / "folder"), tmp_path, "one")
    ends.sink.put("errors.jsonl", b"\n" + line + b"\n")
    flow = choose(load(Path(ends.manifest)), None)
    with pytest.raises(PermanentError, match=r"out/errors.jsonl, line 2, cannot be read"):
        flow.branches[0].sink.error_store().pending("ns/f", None, 10)
