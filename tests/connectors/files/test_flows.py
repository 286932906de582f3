"""Flows with a folder at an end: checked, looked into, rejected records put back."""

from __future__ import annotations

import json
import os
import uuid
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from pydantic import ValidationError
from pyspark.sql import SparkSession
from ruamel.yaml import YAML

import devservers
from dataflow_assets.cli import main
from dataflow_assets.connectors.files import FilesSink, FilesSource
from dataflow_assets.contracts import Run, Target
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.manifests.load import load
from dataflow_assets.runs.replay import replay
from dataflow_assets.testing import choose
from tests.connectors.files import driver
from tests.contract.drivers import encode
from tests.contract.test_branches_apart import Apart
from tests.drained import drain_file

LINES = b'{"id": 1}\n{"id": "two"}\nnot json\n{"id": 3}\n'
VERSION = {"apiVersion": "dataflow.dataflow.io/v1"}
CAST = {"type": "cast", "config": {"spec": {"id": "int64"}}}


def manifest(folder: Path, place: driver.Config, steps: list[dict[str, Any]]) -> Path:
    ends = {
        role: {"type": "files", "config": {**place, "path": f"{place['path']}/{role}"}}
        for role in ("source", "sink")
    }
    document = {
        **VERSION,
        "kind": "DataFlow",
        "metadata": {"name": "folders"},
        "spec": {**ends, "transformations": steps, "onRejected": "table"},
    }
    path = folder / "folders.yaml"
    YAML().dump(document, path)
    return path


def end(place: driver.Config, role: str) -> driver.Folder:
    return driver.folder({**place, "path": f"{place['path']}/{role}"})


def test_check_and_preview(
    place: driver.Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    end(place, "source").put("a.jsonl", LINES)
    path = manifest(tmp_path, place, [])
    assert main(["check", str(path)]) == 0
    capsys.readouterr()
    said = []
    for _ in ("waiting", "done"):
        assert main(["preview", str(path), "--json", "--limit", "1"]) == 0
        said.append(json.loads(capsys.readouterr().out)["in"])
        drain_file(str(path))
    assert said == [{"body": {"id": 1}, "metadata": {"file": "a.jsonl", "position": 0}}] * 2


def test_rejected_records_are_beside_the_lines_and_put_back_once(
    place: driver.Config, tmp_path: Path, engine: SparkSession
) -> None:
    end(place, "source").put("a.jsonl", LINES)
    drain_file(str(manifest(tmp_path, place, [CAST])))
    sink = end(place, "sink")
    assert driver.lines(sink) == [[{"id": 1}, {"id": 3}]]
    (rejected,) = driver.lines(sink, rejected=True)
    assert [row["error"]["stage"] for row in rejected] == ["step", "sink"]
    flow = choose(load(manifest(tmp_path, place, [])), None)
    for rows, again in ((1, 1), (0, 1)):
        done = list(replay(flow, lambda: engine, Run()))
        assert [(one.rows, one.rejected_again) for one in done] == [(rows, again)]
        found = [row["id"] for file in driver.lines(sink) for row in file]
        assert sorted(found, key=str) == [1, 3, "two"]


def test_the_last_line_of_a_key_counts_where_a_branch_upserts(
    postgresql: devservers.PostgreSQL, schema: str, tmp_path: Path
) -> None:
    """Also in a span whose parts are read again, in smaller ones, after a crash."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number, name in enumerate("ab"):
        lines = (b'{"id": %d, "v": %d}\n' % (n % 5, number * 1000 + n) for n in range(200))
        (folder / f"{name}.jsonl").write_bytes(b"".join(lines))
        os.utime(folder / f"{name}.jsonl", (number, number))
    with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
        connection.execute(f"create table {schema}.t (id bigint primary key, v bigint)".encode())
    table = {"connectionString": postgresql.dsn(), "table": f"{schema}.t", "upsertMode": True}
    spec: dict[str, Any] = {
        "source": {"type": "files", "config": driver.on_disk(folder)},
        "sink": {"type": "postgresql", "config": table},
    }
    for limit, failpoint in ((100, "drain.begun:raise"), (10, ""), (10, "")):
        document = {"kind": "DataFlow", "metadata": {"name": "last"}, **VERSION}
        path = tmp_path / "last.yaml"
        YAML().dump({**document, "spec": {**spec, "maxRecordsPerBatch": limit}}, path)
        with pytest.MonkeyPatch.context() as patch, suppress(TransientError):
            patch.setenv("DATAFLOW_FAILPOINT", failpoint)
            patch.setenv("DATAFLOW_FAILPOINT_TOKEN", uuid.uuid4().hex)
            drain_file(str(path))
    with psycopg.connect(postgresql.dsn()) as connection:
        found = connection.execute(f"select v from {schema}.t order by 1".encode()).fetchall()
    assert found == [(1195 + n,) for n in range(5)]


@pytest.mark.parametrize("at", ["drain.begun", "files.staged"])
def test_a_file_that_grows_while_it_is_read_is_read_whole(
    tmp_path: Path, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = driver.on_disk(tmp_path)
    path, source = str(manifest(tmp_path, place, [])), end(place, "source")
    source.put("a.jsonl", b'{"id": 1}\n')
    monkeypatch.setenv("DATAFLOW_FAILPOINT", f"{at}:raise")
    monkeypatch.setenv("DATAFLOW_FAILPOINT_TOKEN", uuid.uuid4().hex)
    with pytest.raises(TransientError):
        drain_file(path)
    source.put("a.jsonl", b'{"id": 1}\n{"id": 2}\n')
    drain_file(path)
    assert driver.lines(end(place, "sink")) == [[{"id": 1}, {"id": 2}]]


def test_a_half_read_file_that_is_gone_ends_the_branch_that_was_inside_it_alone(
    tmp_path: Path, engine: SparkSession
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(b"".join(encode((n, f"n{n}")) + b"\n" for n in range(1, 21)))
    source: Any = SimpleNamespace(
        declare=lambda: FilesSource.model_validate({"path": str(folder), "parallelReads": 1})
    )
    case = Apart(engine, source, tmp_path)
    try:
        case.some(4)
        case.flaky("odd")
        case.flag.write_text("open")
        with pytest.raises(TransientError, match="was suspended"):
            case.drain(patience=0.2)
        (folder / "a.jsonl").unlink()
        case.flag.unlink()
        (folder / "b.jsonl").write_bytes(encode((22, "n22")) + b"\n")
        with pytest.raises(PermanentError, match=r"odd was suspended: the file a\.jsonl .+ gone"):
            case.drain()
        assert case.rows("even") == list(range(2, 23, 2))
    finally:
        case.store.remove()


def test_a_flow_that_begins_anew_leaves_what_it_has_stored(
    place: driver.Config, tmp_path: Path
) -> None:
    """Its commits have the numbers of those of the log that was removed."""
    source, sink = end(place, "source"), end(place, "sink")
    path = str(manifest(tmp_path, place, []))
    for number in (1, 2):
        source.put(f"{number}.jsonl", b'{"id": %d}\n' % number)
        drain_file(path)
        for one in (*sink.files("_dataflow/log"), *source.files()):
            (sink if one.name.startswith("_dataflow") else source).delete(one.name)
    assert sorted(row["id"] for file in driver.lines(sink) for row in file) == [1, 2]


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"path": "orders"}, "must be s3://bucket/prefix or an absolute path"),
        ({"path": "s3://bucket"}, "must be s3://bucket/prefix"),
        ({"path": "/"}, "must be s3://bucket/prefix"),
        ({"path": "/data/../etc"}, "must be s3://bucket/prefix"),
        ({"path": "/data", "accessKey": "a"}, "belong together"),
        ({"path": "/data", "upsertMode": True}, "upsertMode"),
    ],
)
def test_what_cannot_be_declared(
    config: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATAFLOW_FILES", "/data")
    with pytest.raises(ValidationError, match=reason):
        FilesSink.model_validate(config)


@pytest.mark.parametrize("kind", [FilesSource, FilesSink])
def test_a_folder_of_the_disk_is_below_the_root_also_after_links_are_followed(
    kind: type[FilesSource | FilesSink], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    for one in (root / "in", outside):
        one.mkdir(parents=True)
    (root / "out").symlink_to(outside)
    (root / "same").symlink_to(root / "in")
    monkeypatch.setenv("DATAFLOW_FILES", str(root))
    for name in ("in", "same"):
        assert kind.model_validate({"path": f"{root}/{name}"})
    for path in (outside, root / "out", root / "out" / "x", "/etc", tmp_path / "root2"):
        with pytest.raises(ValidationError, match=r"is not below the folder DATAFLOW_FILES \(/"):
            kind.model_validate({"path": str(path)})
    monkeypatch.delenv("DATAFLOW_FILES")
    with pytest.raises(ValidationError, match=r"DATAFLOW_FILES \(not set\): set DATAFLOW_FILES"):
        kind.model_validate({"path": f"{root}/in"})


def test_a_folder_that_a_link_leads_out_of_the_root_by_now_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    (root / "in").mkdir(parents=True)
    monkeypatch.setenv("DATAFLOW_FILES", str(root))
    source = FilesSource.model_validate({"path": f"{root}/in"})
    sink = FilesSink.model_validate({"path": f"{root}/in"})
    (root / "in").rmdir()
    (root / "in").symlink_to(tmp_path)
    target = Target("shop/orders", "main", "h", "in")
    for attempt in (
        lambda: source.open("f"),
        lambda: sink.open(target, Run()),
        sink.error_store().prepare,
    ):
        with pytest.raises(PermanentError, match="is not below the folder DATAFLOW_FILES"):
            attempt()


def test_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATAFLOW_FILES", "/data")
    for path, endpoint, parts in (
        ("/data/orders", None, ("files", "disk", "data.orders")),
        ("/data/x.y", None, ("files", "disk", "data.x%2Ey")),
        ("s3://shop/in/orders", None, ("files", "s3", "shop", "in.orders")),
        ("s3://shop/o", "http://minio:9000", ("files", "minio-9000", "shop", "o")),
    ):
        source = FilesSource.model_validate({"path": path, "s3Endpoint": endpoint})
        assert source.address().parts == parts
