"""The PostgreSQL sink's checkpoint: prefixes, epochs, parts, gaps, and what a person moved."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from dataclasses import replace

import psycopg
import pyarrow as pa
import pytest

import devservers
from dataflow_assets import failpoints
from dataflow_assets.connectors.postgresql import pool
from dataflow_assets.contracts import (
    Note,
    OffsetSlice,
    PartSlice,
    Rejection,
    Run,
    SinkSession,
    Span,
)
from dataflow_assets.errors import PermanentError, TakenOver, TransientError
from dataflow_assets.failpoints import Failpoint
from tests.connectors.postgresql.driver import SOURCE, TARGET, Place, chunk, start, store, write


@pytest.fixture
def place(postgresql: devservers.PostgreSQL, schema: str) -> Place:
    place = Place(postgresql.dsn(), schema)
    place.run("CREATE TABLE orders (id bigint)")
    return place


def ids(*numbers: int) -> list[dict[str, int]]:
    return [{"id": number} for number in numbers]


def test_a_prefix_is_committed_and_the_retry_skips_it(place: Place) -> None:
    sink = place.sink()
    session = start(sink)
    span = session.begin(Span((OffsetSlice("0", 0, 10),)))
    ticket = session.ticket()
    cut_off = write(sink, ticket, span.slices[0], chunk(ticket, ids(0, 1, 2, 3), 0))
    assert cut_off.position == 4
    again = [chunk(ticket, ids(*range(3)), 0), chunk(ticket, ids(*range(3, 10)), 3)]
    retry = write(sink, ticket, span.slices[0], *again)
    assert retry.position == 10
    assert retry.totals.rows == 6
    checkpoint = session.finish(span, [retry], SOURCE)
    assert checkpoint.totals.rows == 10
    nothing = write(sink, ticket, span.slices[0], *again)
    assert (nothing.position, nothing.totals.rows) == (10, 0)
    assert place.rows() == [(i,) for i in range(10)]
    session.close()


def test_filtered_and_missing_offsets_move_the_checkpoint(place: Place) -> None:
    sink = place.sink()
    session = start(sink, {"0": 5, "1": 0})
    span = session.begin(Span((OffsetSlice("0", 5, 20), OffsetSlice("1", 0, 4))))
    ticket = session.ticket()
    receipt = write(sink, ticket, span.slices[0], chunk(ticket, ids(1), 9, seen=12))
    assert receipt.position == 12
    written = "SELECT xmin::text FROM dataflow_checkpoint"
    before = place.run(written)
    checkpoint = session.finish(span, [receipt], SOURCE)
    assert checkpoint.positions == {"0": 20, "1": 4}
    assert place.run(written) == before  # the rows of the partitions say it all
    assert session.finish(span, [receipt], SOURCE).positions == {"0": 20, "1": 4}
    session.close()
    assert sink.peek(TARGET) == replace(checkpoint, committed_at=sink.peek(TARGET).committed_at)  # type: ignore[union-attr]


def test_an_empty_end_commits_nothing(place: Place) -> None:
    sink = place.sink()
    session = start(sink)
    span = session.begin(Span((OffsetSlice("0", 0, 10),)))
    receipt = write(sink, session.ticket(), span.slices[0])
    assert receipt.position is None
    assert sink.peek(TARGET).positions == {"0": 0}  # type: ignore[union-attr]
    session.close()


def test_start_positions_are_durable_before_anything_is_read(place: Place) -> None:
    session = start(place.sink(), {"0": 7})
    session.begin(Span((OffsetSlice("0", 7, 7), OffsetSlice("1", 3, 3))))
    assert session.checkpoint.positions == {"0": 7, "1": 3}
    session.close()
    again = place.sink().open(TARGET, Run())
    assert again.checkpoint.positions == {"0": 7, "1": 3}
    assert (again.checkpoint.source, again.checkpoint.target) == ("t1", again.table.identity)
    assert again.checkpoint.manifest == "m1"
    again.close()


def test_a_steady_loop_asks_the_database_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a micro-batch without gaps costs the driver: no statement at all."""
    sink = place.sink()
    session = store(sink, ids(1))
    monkeypatch.setattr(pool, "_lend", None)  # writers take theirs otherwise
    store(sink, ids(2), session=session)
    assert session.checkpoint.totals.rows == 2
    assert place.rows() == [(1,), (2,)]
    session.close()


def test_a_taken_over_driver_and_its_tasks_stop(place: Place) -> None:
    sink = place.sink()
    old = start(sink, run="old")
    span = old.begin(Span((OffsetSlice("0", 0, 2),)))
    ticket = old.ticket()
    new = sink.open(TARGET, Run("new", "h2", 7))
    assert new.checkpoint.epoch == old.checkpoint.epoch + 1
    with pytest.raises(TakenOver, match=r"taken over by run new on host h2 \(pid 7\)"):
        write(sink, ticket, span.slices[0], chunk(ticket, ids(1, 2), 0))
    for act in (
        lambda: old.finish(span, [], SOURCE),
        lambda: old.begin(Span((OffsetSlice("9", 0, 1),))),
        lambda: old.restart({"0": 0}, "t1"),
        lambda: old.restart({"0": 0}, "t1", empty=True),
        old.forget,
    ):
        with pytest.raises(TakenOver):
            act()
    assert place.rows() == []
    store(sink, ids(5), session=new)
    assert place.rows() == [(5,)]
    old.close()
    new.close()


def test_taking_over_ends_a_writer_that_hangs_in_its_transaction(place: Place) -> None:
    sink = place.sink()
    old = start(sink)
    span = old.begin(Span((OffsetSlice("0", 0, 2),)))
    ticket = old.ticket()
    writer = sink.writer(ticket, span.slices[0])
    writer.write(chunk(ticket, ids(1, 2), 0))
    new = sink.open(TARGET, Run("new"))
    with pytest.raises(TransientError):
        writer.close(complete=False)
    writer.abort()
    writer.abort()
    assert place.rows() == []
    old.close()
    new.close()


def test_a_commit_in_flight_counts_before_the_next_epoch_begins(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer cannot be ended here, as with a role that lacks the right: the lock waits."""
    from dataflow_assets.connectors.postgresql.table import checkpoint_tables as module

    sink = place.sink()
    old = start(sink)
    span = old.begin(Span((OffsetSlice("0", 0, 2),)))
    ticket = old.ticket()
    writer = sink.writer(ticket, span.slices[0])
    writer.write(chunk(ticket, ids(1, 2), 0))
    monkeypatch.setattr(module, "_OLDER", "SELECT 0 WHERE $1::text IS NULL")
    found = []
    opening = threading.Thread(target=lambda: found.append(sink.open(TARGET, Run("new"))))
    opening.start()
    time.sleep(0.5)
    assert not found
    writer.close(complete=False)
    opening.join(10)
    assert found[0].checkpoint.positions == {"0": 2}
    assert place.rows() == [(1,), (2,)]
    old.close()
    found[0].close()


def test_of_drivers_that_open_at_once_only_the_last_goes_on(place: Place) -> None:
    sink = place.sink()
    sessions: list[SinkSession] = []

    def take(number: int) -> None:
        with contextlib.suppress(TransientError):  # ended by one that came later
            sessions.append(sink.open(TARGET, Run(f"r{number}")))

    threads = [threading.Thread(target=take, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    epochs = [session.checkpoint.epoch for session in sessions]
    assert len(set(epochs)) == len(epochs)
    assert max(epochs) == 4
    for session in sessions:
        if session.checkpoint.epoch == 4:
            session.restart({"0": 0}, "t1")
        else:
            with pytest.raises((TakenOver, TransientError)):
                session.restart({"0": 0}, "t1")
        session.close()


@pytest.mark.parametrize("moved", [3, 30], ids=["back", "forward"])
def test_a_checkpoint_moved_back_is_an_error_and_moved_forward_is_obeyed(
    place: Place, moved: int
) -> None:
    sink = place.sink()
    session = start(sink, {"0": 10})
    span = session.begin(Span((OffsetSlice("0", 10, 20),)))
    ticket = session.ticket()
    place.run(f"UPDATE dataflow_checkpoint_partition SET next_offset = {moved}")
    if moved == 30:
        receipt = write(sink, ticket, span.slices[0], chunk(ticket, ids(*range(10)), 10))
        assert receipt.position == 30
        assert session.finish(span, [receipt], SOURCE).positions == {"0": 30}
    else:
        with pytest.raises(PermanentError, match="was moved by somebody"):
            write(sink, ticket, span.slices[0], chunk(ticket, ids(*range(10)), 10))
        with pytest.raises(PermanentError, match="moved by somebody"):
            session.finish(span, [], SOURCE)
    assert place.rows() == []
    session.close()


def test_a_checkpoint_row_removed_under_the_flow_is_an_error(place: Place) -> None:
    sink = place.sink()
    session = start(sink)
    span = session.begin(Span((OffsetSlice("0", 0, 2),)))
    place.run("DELETE FROM dataflow_checkpoint_partition")
    with pytest.raises(PermanentError, match="was removed"):
        write(sink, session.ticket(), span.slices[0], chunk(session.ticket(), ids(1, 2), 0))
    session.close()


def test_a_replaced_table_is_noticed_by_the_task(place: Place) -> None:
    sink = place.sink()
    session = start(sink)
    span = session.begin(Span((OffsetSlice("0", 0, 2),)))
    place.run("DROP TABLE orders; CREATE TABLE orders (id bigint)")
    with pytest.raises(TransientError, match="replaced by another"):
        write(sink, session.ticket(), span.slices[0], chunk(session.ticket(), ids(1, 2), 0))
    again = sink.open(TARGET, Run())
    assert again.checkpoint.target != again.table.identity
    session.close()
    again.close()


PARTS = Span((PartSlice("p0", None, "a", "1-2"), PartSlice("p1", None, "b", "3-4")))


def test_parts_are_committed_whole_and_once(place: Place) -> None:
    sink = place.sink()
    session = start(sink, {"state": "begin"})
    session.restart({}, "t1")
    span = session.begin(PARTS)
    ticket = session.ticket()
    cut_off = write(sink, ticket, span.slices[0], chunk(ticket, ids(1), 0), complete=False)
    assert cut_off.position is None
    assert place.rows() == []
    first = write(sink, ticket, span.slices[0], chunk(ticket, ids(1, 2), 0))
    assert first.position == "a"
    twice = write(sink, ticket, span.slices[0], chunk(ticket, ids(1, 2), 0))
    assert (twice.position, twice.totals.rows) == ("a", 0)
    session.close()

    session = sink.open(TARGET, Run())
    resumed = session.begin(Span((PartSlice("other", None, "z"),)))
    assert [s.empty for s in resumed.slices] == [True, False]
    assert resumed.slices[1] == PARTS.slices[1]
    with pytest.raises(TransientError, match="part p1 was not read to its end"):
        session.finish(resumed, [], SOURCE)
    assert session.checkpoint.positions == {"p0": "a"}
    write(sink, session.ticket(), resumed.slices[1], chunk(session.ticket(), ids(3, 4), 0))
    checkpoint = session.finish(resumed, [], SOURCE)
    assert checkpoint.positions == {"state": "a+b"}
    assert checkpoint.totals.rows == 4
    assert session.finish(resumed, [], SOURCE) == checkpoint
    assert place.rows() == [(1,), (2,), (3,), (4,)]
    following = Span((PartSlice("p0", None, "c"), PartSlice("state", "a+b", "a+b")))
    assert session.begin(following) == following
    session.close()


def test_an_empty_part_counts_as_done(place: Place) -> None:
    sink = place.sink()
    session = start(sink, {"0": "x"})
    span = session.begin(Span((PartSlice("0", "x", "y"),)))
    receipt = write(sink, session.ticket(), span.slices[0])
    assert receipt.position == "y"
    assert session.finish(span, [receipt], SOURCE).positions == {"state": "y"}
    session.close()


def test_a_part_that_stands_elsewhere_was_moved(place: Place) -> None:
    sink = place.sink()
    session = start(sink, {"0": "x"})
    span = session.begin(Span((PartSlice("0", "x", "y"),)))
    place.run("UPDATE dataflow_checkpoint_partition SET part = 'q'")
    with pytest.raises(PermanentError, match="was moved by somebody"):
        write(sink, session.ticket(), span.slices[0], chunk(session.ticket(), ids(1), 0))
    session.close()


STEPS = ["postgresql.copy", "postgresql.before-commit", "postgresql.after-commit"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("parts", [False, True], ids=["offsets", "parts"])
def test_a_failure_at_any_step_of_a_task_neither_loses_nor_doubles(
    place: Place, step: str, parts: bool
) -> None:
    sink = place.sink()
    session = start(sink, {"0": "x"} if parts else {"0": 0})
    piece = PartSlice("0", "x", "y") if parts else OffsetSlice("0", 0, 4)
    span = session.begin(Span((piece,)))
    ticket = session.ticket()
    chunks = [chunk(ticket, ids(0, 1), 0), chunk(ticket, ids(2, 3), 2)]
    armed = replace(ticket, failpoint=Failpoint(step, "raise", 1, 0, "", uuid.uuid4().hex))
    with pytest.raises(TransientError, match="failpoint"):
        write(sink, armed, piece, *chunks)
    failpoints.arm(None)
    receipt = write(sink, ticket, piece, *chunks)
    assert session.finish(span, [receipt], SOURCE).totals.rows == 4
    assert place.rows() == [(0,), (1,), (2,), (3,)]
    session.close()


def test_totals_go_on_over_restarts_and_end_with_forget(place: Place) -> None:
    sink = place.sink()
    session = store(sink, ids(1, 2))
    session.restart({"0": 0}, "t2")
    assert session.checkpoint.totals.rows == 2
    assert session.checkpoint.source == "t2"
    store(sink, ids(1), session=session)
    assert session.checkpoint.totals.rows == 3
    session.restart({"0": 1}, "t2", empty=True)
    assert place.rows() == []
    epoch = session.checkpoint.epoch
    session.forget()
    session.close()
    assert sink.peek(TARGET) is None
    again = sink.open(TARGET, Run())
    assert (again.checkpoint.epoch, again.checkpoint.totals.rows) == (epoch + 1, 0)
    assert again.checkpoint.positions == {}
    again.close()


def test_a_table_that_cannot_be_emptied_keeps_the_checkpoint(place: Place) -> None:
    place.run("ALTER TABLE orders ADD UNIQUE (id)")
    place.run("CREATE TABLE lines (id bigint REFERENCES orders (id))")
    session = store(place.sink(), ids(1, 2))
    with pytest.raises(PermanentError, match="truncate"):
        session.restart({"0": 0}, "t1", empty=True)
    session.close()
    kept = place.sink().peek(TARGET)
    assert kept is not None
    assert kept.positions == {"0": 2}
    assert place.rows() == [(1,), (2,)]


def test_a_table_made_by_hand_after_the_start_is_remembered(place: Place) -> None:
    place.run("DROP TABLE orders")
    start(place.sink()).close()
    place.run("CREATE TABLE orders (id bigint)")
    session = place.sink().open(TARGET, Run())
    assert session.checkpoint.target is None
    store(place.sink(), ids(1), session=session).close()
    again = place.sink().open(TARGET, Run())
    assert again.checkpoint.target == again.table.identity
    again.close()


def test_peek_changes_nothing(place: Place) -> None:
    assert place.sink().peek(TARGET) is None
    assert place.run("SELECT to_regclass('dataflow_checkpoint')") == [(None,)]
    session = start(place.sink())
    place.sink().peek(TARGET)
    assert session.checkpoint.epoch == place.sink().peek(TARGET).epoch  # type: ignore[union-attr]
    session.close()


def test_create_makes_the_table_of_the_sample(place: Place) -> None:
    place.table = "made"
    sample = pa.schema(
        [
            ("note", pa.null()),
            ("id", pa.int64()),
            ("ok", pa.bool_()),
            ("price", pa.float64()),
            ("name", pa.string()),
            ("lines", pa.list_(pa.int64())),
            ("who", pa.struct([("a", pa.int64())])),
            ("mixed", pa.json_()),
            ('odd "name', pa.string()),
        ]
    )
    sink = place.sink(
        autoCreateTable=True, softDeleteColumn="gone", columns={"price": "double precision"}
    )
    session = start(sink)
    assert session.table.schema() is None
    session.table.create(sample)
    session.table.create(sample)
    session.begin(Span(()))
    assert session.checkpoint.target == session.table.identity
    types = place.run(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = 'made'::regclass AND attnum > 0 ORDER BY 1"
    )
    assert dict(types) == {
        "note": "text",
        "id": "numeric",
        "ok": "boolean",
        "price": "double precision",
        "name": "text",
        "lines": "jsonb",
        "who": "jsonb",
        "mixed": "jsonb",
        'odd "name': "text",
        "gone": "timestamp without time zone",
        "created_at": "timestamp with time zone",
        "updated_at": "timestamp with time zone",
    }
    store(sink, [{"id": "1.50", "lines": "[1]", 'odd "name': "x"}], session=session)
    assert place.run("SELECT id::text, created_at IS NOT NULL FROM made") == [("1.50", True)]
    session.close()
    upserting = place.sink(table=f"{place.schema}.keyed", autoCreateTable=True, upsertMode=True)
    session = upserting.open(replace(TARGET, branch="keyed"), Run())
    session.table.create(sample)
    found = session.table.schema()
    assert found is not None
    assert found.metadata[Note.KEY] == b'["id"]'
    session.close()


def test_create_without_permission_names_the_option(place: Place) -> None:
    place.table = "made"
    session = start(place.sink())
    with pytest.raises(PermanentError, match="autoCreateTable: true"):
        session.table.create(pa.schema([("id", pa.int64())]))
    session.close()
    session = start(place.sink(autoCreateTable=True))
    with pytest.raises(PermanentError, match="name the columns under `columns`"):
        session.table.create(pa.schema([]))
    session.close()
    keyed = place.sink(autoCreateTable=True, upsertMode=True, conflictKey=["a", "b"])
    session = start(keyed)
    with pytest.raises(PermanentError, match="conflictKey b is in none of the first records"):
        session.table.create(pa.schema([("a", pa.int64())]))
    session.close()


def test_a_role_without_rights_is_told_what_to_do(place: Place) -> None:
    role = f"role_{place.schema}"
    place.run(f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {place.schema} TO {role}")
    try:
        other = Place(place.dsn.replace("postgres@", f"{role}@"), place.schema)
        with pytest.raises(
            PermanentError, match=r"let the role create tables there, or run: CREATE"
        ):
            other.sink().open(TARGET, Run())
        with pytest.raises(PermanentError, match="nowhere does not exist: correct table, or run"):
            place.sink(table="nowhere.t").open(TARGET, Run())
    finally:
        place.run(f"DROP OWNED BY {role}; DROP ROLE {role}")


@pytest.mark.parametrize(
    "connection",
    [
        "postgresql://flow:h%40rd-s3cret@127.0.0.1:1/db",
        "host=127.0.0.1 port=1 user=flow password=h@rd-s3cret dbname=db",
        "postgresql://flow:h@rd-s3cret@127.0.0.1:1/db?pool_max_conns=3",
    ],
)
def test_an_unreachable_server_is_transient_and_shows_no_secret(
    place: Place, connection: str
) -> None:
    sink = place.sink(connectionString=connection)
    with pytest.raises(TransientError) as caught:
        sink.open(TARGET, Run())
    assert "127.0.0.1:1" in str(caught.value)
    session = start(place.sink())
    ticket = session.ticket()
    with pytest.raises(TransientError) as in_task:
        write(sink, ticket, OffsetSlice("0", 0, 1), chunk(ticket, ids(1), 0))
    session.close()
    for error in (caught.value, in_task.value):
        assert "s3cret" not in str(error)
        assert "s3cret" not in repr(error.__cause__) + repr(error.__context__)
    assert "s3cret" not in repr(sink)


def test_deadlocks_between_two_slices_are_tried_again(place: Place) -> None:
    """Somebody else locks the rows in the other order; PostgreSQL ends one of the two."""
    place.run("CREATE TABLE keyed (id bigint PRIMARY KEY, v int)")
    place.run("INSERT INTO keyed VALUES (1, 0), (2, 0)")
    place.table = "keyed"
    sink = place.sink(upsertMode=True)
    session = start(sink)
    session.begin(Span((OffsetSlice("0", 0, 2),)))
    ticket = session.ticket()
    with psycopg.connect(place.dsn) as other:
        other.execute(f"SET search_path TO {place.schema}; SET deadlock_timeout = '20s'")
        other.execute("UPDATE keyed SET v = -1 WHERE id = 2")
        rows = [{"id": 1, "v": 1}, {"id": 2, "v": 2}]
        receipts = []
        task = threading.Thread(
            target=lambda: receipts.append(
                write(sink, ticket, OffsetSlice("0", 0, 2), chunk(ticket, rows, 0))
            )
        )
        task.start()
        time.sleep(0.3)
        other.execute("UPDATE keyed SET v = -1 WHERE id = 1")
        other.commit()
        task.join(20)
    assert receipts[0].position == 2
    assert place.rows() == [(1, 1), (2, 2)]
    session.close()


def test_rejected_records_tell_the_step_also_in_a_table_of_an_earlier_version(
    place: Place,
) -> None:
    place.sink().open(TARGET, Run()).close()
    drop = "ALTER TABLE dataflow_rejected DROP COLUMN step, DROP COLUMN step_type"
    place.run(drop)
    session = start(place.sink())
    span = session.begin(Span((OffsetSlice("0", 0, 2),)))
    ticket = session.ticket()
    failed = Rejection(1, "step", "no number", b"body", step=3, step_type="cast")
    write(place.sink(), ticket, span.slices[0], chunk(ticket, ids(0), 0, [failed]))
    assert place.run("SELECT stage, step, step_type FROM dataflow_rejected") == [
        ("step", 3, "cast")
    ]
    session.close()


def test_a_role_that_cannot_add_columns_is_told_what_to_run(place: Place) -> None:
    role = f"role_{place.schema}"
    place.sink().open(TARGET, Run()).close()
    place.run("ALTER TABLE dataflow_rejected DROP COLUMN step, DROP COLUMN step_type")
    rights = f"GRANT USAGE, CREATE ON SCHEMA {place.schema} TO {role}"
    place.run(
        f"CREATE ROLE {role} LOGIN; {rights}; GRANT ALL ON ALL TABLES IN SCHEMA "
        f"{place.schema} TO {role}"
    )
    try:
        other = Place(place.dsn.replace("postgres@", f"{role}@"), place.schema)
        with pytest.raises(PermanentError, match=r"ALTER TABLE .* ADD COLUMN IF NOT EXISTS step"):
            other.sink().open(TARGET, Run())
    finally:
        place.run(f"DROP OWNED BY {role}; DROP ROLE {role}")
