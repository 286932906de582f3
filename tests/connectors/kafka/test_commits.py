"""What a checkpoint in a topic is worth: late tasks, drivers that race, crashes between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

import devservers
from dataflow_assets.connectors.kafka import KafkaSink
from dataflow_assets.connectors.kafka.sink import head_writer
from dataflow_assets.connectors.kafka.sink.checkpoint_records import side_topic
from dataflow_assets.contracts import (
    OffsetSlice,
    PartSlice,
    Run,
    Span,
    Target,
)
from dataflow_assets.errors import PermanentError, TakenOver, TransientError
from tests.conftest import Topics
from tests.connectors.kafka.impatient import impatient
from tests.connectors.kafka.sinking import SOURCE, Make, Sent, branches


@pytest.fixture
def into(kafka: devservers.Kafka, topic: Topics) -> Iterator[Make]:
    with branches(kafka, topic) as make:
        yield make


def test_a_prefix_is_committed_and_never_twice(into: Make) -> None:
    target = into()
    piece = OffsetSlice("0", 0, 10)
    rows = [Sent(b"%d" % n) for n in range(10)]
    session, span = target.begun(piece)
    first = target.write(session, piece, rows[:4]).close(complete=False)
    assert first.position == 4
    again = target.write(session, piece, rows[:7]).close(complete=False)
    assert (again.position, again.totals.rows) == (7, 3)
    nothing = target.write(session, piece, rows[:7]).close(complete=False)
    assert (nothing.position, nothing.totals.rows) == (7, 0)
    checkpoint = session.finish(span, [again], None)  # type: ignore[arg-type]
    assert checkpoint.positions == {"0": 10}  # what lies behind the last record are markers
    assert checkpoint.totals.rows == 7
    assert target.sink.peek(target.target) == checkpoint
    assert target.values() == [row.value for row in rows[:7]]


def test_a_moved_checkpoint_is_told(into: Make) -> None:
    target = into()
    session, _ = target.begun(OffsetSlice("0", 0, 10))
    with pytest.raises(PermanentError, match="is at 0, but the micro-batch was planned from 5"):
        target.write(session, OffsetSlice("0", 5, 10), [Sent(b"x")], 5)


def test_a_task_of_an_older_driver_commits_nothing(into: Make) -> None:
    target = into()
    piece = OffsetSlice("0", 0, 2)
    old, _ = target.begun(piece)
    late = target.write(old, piece, [Sent(b"old")])
    new, _ = target.begun(piece)
    writer = target.write(new, piece, [Sent(b"new")])
    with pytest.raises(TakenOver, match="taken over by run"):
        late.close(complete=False)
    with pytest.raises(TakenOver, match="taken over by run"):
        target.write(old, piece, [Sent(b"old")])
    assert target.values() == []
    with pytest.raises(TransientError):  # the late attempt has fenced it before it stopped
        writer.close(complete=False)
    target.write(new, piece, [Sent(b"new")]).close(complete=False)
    assert target.values() == [b"new"]
    with pytest.raises(TakenOver, match="taken over by run"):
        old.begin(Span((OffsetSlice("7", 0, 2),)))


def test_of_two_attempts_at_a_slice_one_commits(into: Make) -> None:
    target = into()
    piece = OffsetSlice("0", 0, 2)
    session, _ = target.begun(piece)
    first = target.write(session, piece, [Sent(b"x")])
    second = target.write(session, piece, [Sent(b"x")])
    with pytest.raises(TransientError):
        first.close(complete=False)
    assert second.close(complete=False).totals.rows == 1
    assert target.values() == [b"x"]


def test_a_commit_of_an_older_task_before_ours_is_skipped(into: Make) -> None:
    """It had read the head before the new driver took the epoch."""
    target = into()
    piece = OffsetSlice("0", 0, 3)
    old, _ = target.begun(piece)
    late = target.write(old, piece, [Sent(b"0"), Sent(b"1")])
    new = target.open()
    assert late.close(complete=False).position == 2
    assert new.checkpoint.positions == {"0": 0}
    span = new.begin(Span((piece,)))
    receipt = target.write(new, piece, [Sent(b"0"), Sent(b"1"), Sent(b"2")]).close(complete=False)
    assert receipt.totals.rows == 1
    assert new.finish(span, [receipt], None).totals.rows == 3  # type: ignore[arg-type]
    assert target.values() == [b"0", b"1", b"2"]


def test_an_emptied_topic_gets_no_row_of_a_task_begun_before(into: Make) -> None:
    target = into(partitions=2)
    target.put([Sent(b"first")])
    piece = OffsetSlice("0", 1, 3)
    session = target.open()
    session.begin(Span((piece,)))
    late = target.write(session, piece, [Sent(b"late")], 1)
    session.restart({"0": 0}, SOURCE, empty=True)
    with pytest.raises(TransientError):
        late.close(complete=False)
    assert target.values() == []
    assert session.checkpoint.positions == {"0": 0}
    assert session.checkpoint.totals.rows == 1


def test_what_a_crash_left_of_emptying_a_topic_is_done_by_the_next_driver(
    into: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataflow_assets import failpoints

    target = into()
    target.put([Sent(b"first")])
    session = target.open()
    monkeypatch.setenv("DATAFLOW_FAILPOINT", "kafka.empty:raise")
    monkeypatch.setenv("DATAFLOW_FAILPOINT_TOKEN", target.topic)
    failpoints.arm(failpoints.from_environment())
    with pytest.raises(TransientError):
        session.restart({"0": 0}, SOURCE, empty=True)
    failpoints.arm(None)
    assert target.values() == [b"first"]
    assert target.open().checkpoint.positions == {"0": 0}
    assert target.values() == []


def test_a_compacted_topic_cannot_be_emptied(into: Make) -> None:
    target = into(config={"cleanup.policy": "compact"}, upsertMode=True)
    session = target.open()
    with pytest.raises(PermanentError, match=r"cleanup\.policy is compact"):
        session.restart({"0": 0}, SOURCE, empty=True)


def test_a_forgotten_branch_begins_anew(into: Make) -> None:
    target = into()
    target.put([Sent(b"x")])
    target.open().forget()
    assert target.sink.peek(target.target) is None
    assert target.open().checkpoint.positions == {}


class Parts:
    """Folds `part-N` into one position, as part sources do."""

    def fold(self, positions: dict[str, Any]) -> dict[str, Any]:
        done = [value for name, value in positions.items() if name.startswith("part-")]
        return {"table": done[0] if done else positions["table"]}


def parts(upto: str) -> Span:
    return Span(tuple(PartSlice(f"part-{n}", None, upto, f"{upto}:{n}") for n in (0, 1)))


def test_parts_are_committed_whole_and_resumed(into: Make) -> None:
    target = into()
    session = target.open()
    session.restart({"table": ""}, SOURCE)
    span = session.begin(parts("10"))
    doubtful = target.write(session, span.slices[0], [Sent(b"a")])
    doubtful.close(complete=False)
    assert target.values() == []
    target.write(session, span.slices[0], [Sent(b"a")]).close(complete=True)
    again = target.open()
    resumed = again.begin(parts("99"))
    assert [piece.empty for piece in resumed.slices] == [True, False]
    assert resumed.upto == {"part-0": "10", "part-1": "10"}
    target.sink.writer(again.ticket(), resumed.slices[1]).close(complete=True)  # without a row
    third = target.open()
    done = third.begin(parts("99"))
    assert done.empty
    checkpoint = third.finish(done, [], Parts())  # type: ignore[arg-type]
    assert checkpoint.positions == {"table": "10"}
    assert target.values() == [b"a"]
    # The next span has parts of the same names: what the tokens say is of the last one.
    following = third.begin(parts("20"))
    receipts = [
        target.write(third, piece, [Sent(b"b")]).close(complete=True) for piece in following.slices
    ]
    assert third.finish(following, receipts, Parts()).positions == {"table": "20"}  # type: ignore[arg-type]
    assert target.values() == [b"a", b"b", b"b"]
    assert third.checkpoint.totals.rows == 3


def test_a_late_task_of_the_last_span_does_not_write_its_part_again(into: Make) -> None:
    target = into()
    session = target.open()
    session.restart({"table": ""}, SOURCE)
    span = session.begin(parts("10"))
    receipts = [
        target.write(session, piece, [Sent(b"a")]).close(complete=True) for piece in span.slices
    ]
    session.finish(span, receipts, Parts())  # type: ignore[arg-type]
    session.begin(parts("20"))
    with pytest.raises(TakenOver, match="came too late"):
        target.write(session, span.slices[0], [Sent(b"a")])
    assert target.values() == [b"a", b"a"]


def test_a_topic_deleted_under_a_slice_is_told(kafka: devservers.Kafka, into: Make) -> None:
    target = into()
    piece = OffsetSlice("0", 0, 3)
    session, _ = target.begun(piece)
    writer = target.write(session, piece, [Sent(b"x")])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    admin.delete_topics([target.topic])[target.topic].result(20)
    with pytest.raises(PermanentError, match="deleted while the flow ran"):
        writer.close(complete=False)


def test_a_checkpoint_removed_under_a_run_is_told(kafka: devservers.Kafka, into: Make) -> None:
    target = into()
    piece = OffsetSlice("0", 0, 3)
    session, _ = target.begun(piece)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    name = side_topic(target.target)
    admin.delete_topics([name])[name].result(20)
    with pytest.raises(PermanentError, match="was removed while it ran"):
        target.write(session, piece, [Sent(b"x")])


def test_nobody_at_the_address_is_transient(monkeypatch: pytest.MonkeyPatch) -> None:
    impatient(monkeypatch)
    sink = KafkaSink(brokers=("127.0.0.1:1",), topic="t")
    target = Target("default/flow", "kafka:t", "h", "src", SOURCE)
    with pytest.raises(TransientError, match=r"127\.0\.0\.1:1"):
        sink.open(target, Run())
    with pytest.raises(TransientError, match=r"127\.0\.0\.1:1"):
        sink.peek(target)


def test_a_driver_whose_producer_made_room_for_others_goes_on(
    into: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head_writer, "MOST", 2)
    targets = [into() for _ in range(4)]
    sessions = [target.open() for target in targets]
    assert len(head_writer._kept) == 2
    for session in sessions:
        session.restart({"0": 3}, "topic-1")
        session.restart({"0": 4}, "topic-1")
    assert [target.open().checkpoint.positions for target in targets] == [{"0": 4}] * 4


def test_an_older_driver_without_its_producer_leaves_the_newer_one_alone(
    into: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head_writer, "MOST", 1)
    target, other = into(), into()
    old = target.open()
    new = target.open()
    with pytest.raises(TakenOver, match="taken over by run"):
        old.restart({"0": 1}, "topic-1")
    new.restart({"0": 2}, "topic-1")  # with the producer that it has had
    other.open()
    with pytest.raises(TakenOver, match="taken over by run"):
        old.adopt()
    new.adopt()
    assert target.open().checkpoint.positions == {"0": 2}
