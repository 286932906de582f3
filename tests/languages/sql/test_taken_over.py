"""Topics that Flink or an earlier version has filled: a row is found by the bytes of its key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dataflow_assets.connectors.kafka.sink import head_writer
from dataflow_assets.contracts import Run as Running
from dataflow_assets.flow import Flow
from dataflow_assets.runs.replay import replay
from dataflow_assets.runs.request import Report, Start
from tests.drained import drained
from tests.languages.sql.files import Sent, Sql, latest

Run = Callable[[Flow], list[Report]]
Begin = Callable[..., Flow]
COLUMNS = "d DECIMAL(10, 2), f DOUBLE, s STRING, n INT"
KEYED = f"{COLUMNS}, PRIMARY KEY (d, f, s) NOT ENFORCED"
FLINKS = rb'{"d":1.5,"f":1.0E16,"s":"\uD83D\uDE00"}'
BEFORE = '{"d":1.50,"f":1E+16,"s":"\U0001f600"}'.encode()


def change(number: str) -> Sent:
    return None, f'{{"d":1.50,"f":1e16,"s":"\U0001f600","n":{number}}}'.encode()


@pytest.fixture
def begun_before(monkeypatch: pytest.MonkeyPatch) -> Begin:
    """A flow whose first run was that of an earlier version, which said nothing of keys."""

    def begin(sql: Sql, run: Run, columns: str = KEYED) -> Flow:
        flow = sql.write(COLUMNS, columns, "SELECT * FROM s")
        sql.send([change("1")])
        with monkeypatch.context() as patch:
            patch.setattr(head_writer, "CURRENT", "")
            run(flow)
        return flow

    return begin


def keys(sql: Sql) -> list[bytes | None]:
    return [key for key, _ in sql.rows()]


def test_rows_of_flink_are_replaced_and_not_doubled(sql: Sql, run: Run) -> None:
    flow = sql.write(COLUMNS, KEYED, "SELECT * FROM s")
    value = FLINKS[:-1] + b',"n":1}'
    sql.send_to_target([(FLINKS, value)])
    sql.send([change("2")])
    run(flow)
    assert latest(sql.stored()) == {FLINKS: FLINKS[:-1] + b',"n":2}'}


def test_a_topic_of_an_earlier_version_keeps_its_keys(
    sql: Sql, run: Run, begun_before: Begin
) -> None:
    flow = begun_before(sql, run)
    sql.send([change("2")])
    run(flow)
    assert keys(sql) == [BEFORE, BEFORE]


def test_an_emptied_topic_gets_keys_of_flink(sql: Sql, run: Run, begun_before: Begin) -> None:
    flow = begun_before(sql, run)
    drained(flow, Start("earliest", table="truncate"))
    sql.send([change("2")])
    run(flow)
    assert set(keys(sql)) == {FLINKS}


def test_read_again_into_a_topic_that_is_not_emptied_keys_stay(
    sql: Sql, run: Run, begun_before: Begin
) -> None:
    flow = begun_before(sql, run)
    drained(flow, Start("earliest"))
    assert set(keys(sql)) == {BEFORE}


def test_rejected_records_are_taken_back_with_the_keys_of_their_flow(
    sql: Sql, run: Run, engine: Any, begun_before: Begin
) -> None:
    flow = begun_before(sql, run, KEYED.replace("n INT", "n INT NOT NULL"))
    sql.send([change("null")])
    run(flow)
    mended = sql.write(COLUMNS, KEYED, "SELECT * FROM s")
    assert sum(done.rows for done in replay(mended, lambda: engine, Running())) == 1
    assert keys(sql) == [BEFORE, BEFORE]


def test_they_are_taken_back_with_other_keys_once_the_topic_was_emptied(
    sql: Sql, run: Run, engine: Any, begun_before: Begin
) -> None:
    """The branch that takes them back has a head of its own by then."""
    strict = KEYED.replace("n INT", "n INT NOT NULL")

    def taken_back() -> int:
        mended = sql.write(COLUMNS, KEYED, "SELECT * FROM s")
        return sum(done.rows for done in replay(mended, lambda: engine, Running()))

    flow = begun_before(sql, run, strict)
    sql.send([change("null")])
    run(flow)
    assert taken_back() == 1
    drained(sql.write(COLUMNS, strict, "SELECT * FROM s"), Start("earliest", table="truncate"))
    assert taken_back() == 1
    assert keys(sql) == [FLINKS, FLINKS]
