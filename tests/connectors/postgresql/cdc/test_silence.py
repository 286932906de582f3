"""A server that sends nothing: whether it is paused, or has much to do that is not for us."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import count

import pytest

from dataflow_assets.connectors.postgresql.cdc import reader
from dataflow_assets.connectors.postgresql.cdc.position import Lsn, Reached, dump, parse
from dataflow_assets.connectors.postgresql.cdc.reader import CdcProgress, Silence
from dataflow_assets.connectors.postgresql.cdc.started_reader import begin
from dataflow_assets.connectors.postgresql.cdc.walsender import Walsender
from dataflow_assets.errors import TransientError
from tests.connectors.postgresql.cdc.followed import Followed, tuples

COLUMNS = "id int PRIMARY KEY, name text, amount numeric(12,2)"
ASK, SILENT = 0.02, 0.25  # seconds


@pytest.fixture
def table(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> Followed:
    followed.make(COLUMNS)
    monkeypatch.setattr(reader, "ASK_SECONDS", ASK)
    monkeypatch.setattr(reader, "LOOK_SECONDS", ASK)
    monkeypatch.setattr(reader, "SILENT_SECONDS", SILENT)
    return followed


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[CdcProgress]:
    """What the server has told each time that it was silent for a moment."""
    found, ask = list[CdcProgress](), reader.CdcReader._progress

    def asked(self: reader.CdcReader) -> CdcProgress:
        found.append(ask(self))
        return found[-1]

    monkeypatch.setattr(reader.CdcReader, "_progress", asked)
    return found


def _after(table: Followed) -> Lsn:
    after = parse(table.start()["wal"])
    assert after is not None
    return after.lsn


@pytest.mark.parametrize("busy", [True, False])
def test_a_server_that_is_paused_is_an_error(
    table: Followed, monkeypatch: pytest.MonkeyPatch, busy: bool
) -> None:
    """Its kernel goes on to answer: the connection alone does not tell."""
    after = _after(table)
    if busy:
        table.run("CREATE TABLE noise (i int)")
        table.run("INSERT INTO noise SELECT generate_series(1, 100000)")
    with closing(Walsender(table.dsn)) as sender:
        begin(table.source, sender, after)
        os.kill(sender._libpq.backend_pid, signal.SIGSTOP)
        try:
            table.run("INSERT INTO source VALUES (300, 'x', 1)")
            with pytest.raises(TransientError, match=r"has sent nothing for .* it is paused"):
                list(sender.messages(table.log_end()))
        finally:
            os.kill(sender._libpq.backend_pid, signal.SIGCONT)
    monkeypatch.undo()
    table.wait_until_free()
    assert tuples(table.read({"wal": dump(Reached(after))}), ["id"]) == [(300,)]


def test_a_server_that_passes_over_a_transaction_answers(
    table: Followed, told: list[CdcProgress], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not published: at the commit it sends nothing of itself, and stays where it is."""
    monkeypatch.setattr(reader, "SILENT_SECONDS", 60)
    wait, silences = reader.CdcReader._wait, list[set[tuple[str, int]]]()

    def waited(self: reader.CdcReader, silence: Silence) -> None:
        before = len(told)
        wait(self, silence)
        silences.append({(one.place, one.spilled) for one in told[before:]})

    monkeypatch.setattr(reader.CdcReader, "_wait", waited)
    after = _after(table)
    table.run("CREATE TABLE noise (i int)")
    table.run("INSERT INTO noise SELECT generate_series(1, 1000000)")
    table.run("INSERT INTO source VALUES (300, 'x', 1)")
    with closing(Walsender(table.dsn)) as sender:
        begin(table.source, sender, after)
        assert sum(kind == ord("I") for kind, _ in sender.messages(table.log_end())) == 1
    ended = Counter(place for places in silences for place in places)
    assert max(ended.values()) > 2


def test_what_is_put_aside_is_told(
    table: Followed, told: list[CdcProgress], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server sends nothing before it has read the commit; now and then its place stays, too."""
    monkeypatch.setattr(reader, "SILENT_SECONDS", 60)
    after = _after(table)
    table.run("ALTER TABLE source ALTER name SET STORAGE EXTERNAL")
    rows = "SELECT i, repeat('x', 8000), i FROM generate_series(1000, 41000) i"
    table.run(f"INSERT INTO source {rows}")
    with closing(Walsender(table.dsn)) as sender:
        begin(table.source, sender, after)
        assert sum(kind == ord("I") for kind, _ in sender.messages(table.log_end())) == 40_001
    amounts = {one.place: set[int]() for one in told}
    for one in told:
        amounts[one.place].add(one.spilled)
    assert max(map(len, amounts.values())) > 1


@pytest.mark.parametrize("field", ["place", "aside", "neither"])
def test_a_process_that_gets_further_is_not_silent(
    table: Followed, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    """In the log or in what it puts aside; it is silent from the moment at which it stays."""
    steps = count()

    def progress(_: reader.CdcReader) -> CdcProgress:
        step = min(next(steps), 40)
        place = f"0/{step}" if field == "place" else "0/1"
        return CdcProgress(place, step if field == "aside" else 0, "IO ReorderBufferRead")

    monkeypatch.setattr(reader.CdcReader, "_progress", progress)
    with closing(Walsender(table.dsn)) as sender:  # which sends nothing, as nothing is started
        started = time.monotonic()
        with pytest.raises(TransientError, match=r"stays at 0/.*ReorderBufferRead"):
            sender._wait(Silence())
        took = time.monotonic() - started
    moved = 0 if field == "neither" else 40 * ASK
    assert took >= moved + SILENT
    assert next(steps) >= (40 if moved else 1)


def test_who_waits_for_others_is_silent_though_it_answers(
    table: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A walsender that waits for a standby that is down answers, and waits on.

    It is asked no more once that is known: its server would log a warning for each question.
    """
    waits: Iterator[str] = iter(["", "IO WALRead"])
    last = "Client WaitForStandbyConfirmation"
    seen, answered = list[str](), list[Silence]()
    wait, ask = reader.CdcReader._wait, Walsender._ask

    def progress(_: reader.CdcReader) -> CdcProgress:
        seen.append(next(waits, last))
        return CdcProgress("0/1", 0, seen[-1])

    def asked(self: Walsender) -> None:
        seen.append("asked")
        ask(self)

    def waited(self: reader.CdcReader, silence: Silence) -> None:
        wait(self, silence)
        answered.append(silence)

    monkeypatch.setattr(reader.CdcReader, "_progress", progress)
    monkeypatch.setattr(Walsender, "_ask", asked)
    monkeypatch.setattr(reader.CdcReader, "_wait", waited)
    after = _after(table)
    with closing(Walsender(table.dsn)) as sender:
        begin(table.source, sender, after)
        with pytest.raises(TransientError, match="WaitForStandbyConfirmation"):
            list(sender.messages(Lsn(after.value + 2**40)))
    assert "asked" in seen[: seen.index(last)]
    assert "asked" not in seen[seen.index(last) :]
    assert len(answered) > 1
    assert len({id(one) for one in answered}) == 1


def test_a_stretch_without_changes_ends_while_others_write_on(
    table: Followed, told: list[CdcProgress], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server says where it is by itself only where it has come to the end of its log."""
    monkeypatch.setattr(reader, "LOOK_SECONDS", 60)
    after = _after(table)
    table.run("CREATE TABLE noise (i int)")
    upto = table.log_end()
    table.run("INSERT INTO noise SELECT generate_series(1, 1000000)")
    with closing(Walsender(table.dsn)) as sender:
        begin(table.source, sender, after)
        assert not [kind for kind, _ in sender.messages(upto) if kind == ord("I")]
        sent = "SELECT sent_lsn::text FROM pg_stat_replication WHERE pid = %s"
        ((place,),) = table.run(sent, sender._libpq.backend_pid)
    assert upto.value <= Lsn.parse(place).value < table.log_end().value
    assert not told
