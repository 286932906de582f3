"""Parts of a spool are there whole or not at all, and offsets go with them."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dataflow_assets.connectors.kafka_connect.host.sealing import offsets_of, rows_of
from dataflow_assets.connectors.kafka_connect.parts import ConnectPart
from dataflow_assets.connectors.kafka_connect.spool import SCHEMA, ConnectOffset, Spool, canonical
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.sdk import durable_files


def table(*records: str) -> pa.Table:
    rows = [{"topic": "t", "id": None, "record": record.encode()} for record in records]
    return pa.Table.from_pylist(rows, SCHEMA)


def sealed(
    spool: Spool, number: int, task: int, position: int, *, still_open: bool = False
) -> ConnectPart:
    part = ConnectPart(number, task, 1, 10, still_open, "0123abcd")
    spool.seal(
        part, table(f'"{number}"'), {f"partition {task}": ConnectOffset(task, {"at": position})}
    )
    return part


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    made = Spool(tmp_path / "spool")
    with made.lock(0):
        made.begin("C", {})
    return made


def test_offsets_are_those_of_the_last_part_of_each_partition(spool: Spool) -> None:
    parts = [sealed(spool, n, task, at) for n, task, at in ((1, 0, 10), (2, 1, 20), (3, 0, 30))]
    assert spool.parts() == parts
    assert spool.parts(1) == parts[1:]
    before = {
        "partition 1": ConnectOffset(1, {"at": 5}),
        "partition 9": ConnectOffset(9, {"at": 9}),
    }
    assert spool.offsets(parts[:1], before) == before | {
        "partition 0": ConnectOffset(0, {"at": 10})
    }
    found = {key: one.value["at"] for key, one in spool.offsets(parts, before).items()}
    assert found == {"partition 0": 30, "partition 1": 20, "partition 9": 9}


def test_what_is_forgotten_leaves_its_offsets(spool: Spool) -> None:
    parts = [sealed(spool, number, 0, number * 10) for number in (1, 2, 3)]
    for upto in (2, 1, 2):
        spool.forget(upto)
        assert spool.parts() == parts[2:]
        state = spool.state()
        assert state is not None
        assert (state.first, state.offsets) == (3, {"partition 0": ConnectOffset(0, {"at": 20})})


@pytest.mark.parametrize("step", ["fsync", "rename"])
def test_a_part_that_is_not_whole_is_none(
    step: str, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = sealed(spool, 1, 0, 10)

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os if step == "fsync" else Path, step, crash)
        with pytest.raises(KeyboardInterrupt):
            sealed(spool, 2, 0, 20)
    assert spool.parts() == [first]
    assert len(list(spool.folder.glob(".*.parquet"))) == 1
    spool.clear()
    assert sorted(path.name for path in spool.folder.iterdir()) == [
        first.name,
        "lock",
        "state.json",
        "state.lock",
    ]


def test_a_part_that_the_disk_has_no_space_for_takes_none(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        sealed(spool, 1, 0, 10)
    names = sorted(path.name for path in spool.folder.iterdir())
    assert names == ["lock", "state.json", "state.lock"]


def test_a_disk_that_takes_no_further_file_is_named(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file was not even made: it cannot be removed."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(OSError, match="No space left"):
        sealed(spool, 1, 0, 10)


def test_a_crash_while_parts_are_forgotten_brings_none_back(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2, 3):
        sealed(spool, number, 0, number)

    def crash(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", crash)
        with pytest.raises(KeyboardInterrupt):
            spool.forget(2)
    spool.clear()
    assert [part.number for part in spool.parts()] == [3]


def test_one_process_writes(spool: Spool) -> None:
    busy = "another process writes to the spool"
    with spool.lock(0), pytest.raises(TransientError, match=busy), spool.lock(0.2):
        pass
    with spool.lock(0):
        assert spool.parts() == []


def test_a_state_that_cannot_be_read_is_named(spool: Spool) -> None:
    (spool.folder / "state.json").write_text("{")
    with pytest.raises(PermanentError, match=r"state\.json cannot be read"):
        spool.state()


def test_a_record_without_a_key_has_its_place_as_id() -> None:
    columns: dict[str, list[Any]] = {
        "topic": ["t", "t", None],
        "key": ['{"id":1}', None, None],
        "value": [b"1", None, b"3"],
        "partition": ['{"file":"a"}', '{"file":"b","n":1}', None],
        "offset": ['{"at":1}', '{"at":2}', '{"at":3}'],
        "dropped": [None, None, None],
    }
    found = pa.table({name: pa.array(values) for name, values in columns.items()})
    found = found.append_column("refused", pa.nulls(3, pa.string()))
    rows = rows_of(found).to_pylist()
    assert [row["id"] for row in rows] == ['{"id":1}', '{"file":"b","n":1,"at":2}', '{"at":3}']
    assert [row["record"] for row in rows] == [b"1", None, b"3"]
    assert offsets_of(found, 3, {}) == {
        '{"file":"a"}': ConnectOffset(3, {"at": 1}),
        '{"file":"b","n":1}': ConnectOffset(3, {"at": 2}),
    }


def test_equal_partitions_are_one_whatever_their_order() -> None:
    assert canonical({"b": 1, "a": 2}) == canonical({"a": 2, "b": 1}) == '{"a":2,"b":1}'


def test_the_last_record_of_a_partition_wins_whatever_the_order_of_its_keys() -> None:
    partitions = ['{"a":1,"b":2}', '{"b":2,"a":1}', '{"a":1,"b":2}']
    found = pa.table({"partition": partitions, "offset": ['{"n":1}', '{"n":2}', '{"n":3}']})
    assert offsets_of(found, 0, {}) == {'{"a":1,"b":2}': ConnectOffset(0, {"n": 3})}


def test_an_open_part_is_read_once_its_task_can_go_on_behind_a_later_one(spool: Spool) -> None:
    first = sealed(spool, 1, 0, 10)
    middle = [sealed(spool, n, 0, n * 10, still_open=True) for n in (2, 3)]
    other = sealed(spool, 4, 1, 40)
    assert spool.published_parts() == [first]
    last = sealed(spool, 5, 0, 50)
    assert spool.published_parts() == [first, *middle, other, last]


@pytest.mark.parametrize("crash", [False, True])
def test_the_next_process_begins_without_the_records_of_open_parts(
    crash: bool, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another task has delivered behind them stays."""
    first = sealed(spool, 1, 0, 10)
    for number in (2, 3):
        sealed(spool, number, 0, number * 10, still_open=True)
    other = sealed(spool, 4, 1, 40)
    if crash:

        def fail(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", fail)
            with pytest.raises(KeyboardInterrupt):
                spool.clear()
        assert spool.published_parts() == [first]
    spool.clear()
    assert [part.number for part in spool.parts()] == [1, 2, 3, 4]
    assert [part for part in spool.published_parts() if part.rows] == [first, other]
    found = spool.offsets(spool.parts(), {})
    assert {key: one.value["at"] for key, one in found.items()} == {
        "partition 0": 10,
        "partition 1": 40,
    }
    again = sealed(spool, 5, 0, 20)
    assert [part for part in spool.published_parts() if part.rows] == [first, other, again]


@pytest.mark.parametrize("step", ["parts", "offsets"])
def test_the_end_is_the_same_while_parts_are_forgotten(
    step: str, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver forgets what it has read while the next process of the connector begins."""
    for number in (1, 2):
        sealed(spool, number, 0, number * 10)
    driver, original = Spool(spool.folder), getattr(Spool, step)

    def forget(*_: Any) -> Any:
        monkeypatch.undo()
        driver.forget(2)
        return original(*_)

    monkeypatch.setattr(spool, step, lambda *given: forget(spool, *given))
    assert spool.end() == (2, {"partition 0": ConnectOffset(0, {"at": 20})})


def test_an_older_driver_that_forgets_late_brings_nothing_back(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newer driver waits until the older one has noted what is done."""
    for number in (1, 2, 3):
        sealed(spool, number, 0, number * 10)
    newer = threading.Thread(target=Spool(spool.folder).forget, args=(3,))
    original = Spool._write

    def late(*given: Any) -> None:
        if newer.ident is None:
            newer.start()
            newer.join(0.5)
        original(*given)

    monkeypatch.setattr(Spool, "_write", late)
    spool.forget(1)
    newer.join()
    assert spool.end() == (3, {"partition 0": ConnectOffset(0, {"at": 30})})
    assert spool.parts() == []


def test_a_state_that_was_not_written_to_its_end_is_cleared(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed(spool, 1, 0, 10)

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", crash)
        with pytest.raises(KeyboardInterrupt):
            spool.forget(1)
    assert len(list(spool.folder.glob(".state.json.*"))) == 1
    spool.clear()
    assert list(spool.folder.glob(".*")) == []


def test_a_new_folder_and_those_above_survive_a_loss_of_power(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = list[Path]()
    monkeypatch.setattr(durable_files, "sync", synced.append)
    with Spool(tmp_path / "spools" / "mine").lock(0):
        assert synced == [tmp_path, tmp_path / "spools"]
