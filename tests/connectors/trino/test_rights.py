"""What the user of a flow must be allowed to do; what is missing is named and weakens nothing."""

from __future__ import annotations

import pytest

import devservers
from dataflow_assets.connectors.trino import TrinoSink
from dataflow_assets.contracts import Run, Target
from dataflow_assets.errors import PermanentError
from devservers.trino import FILELESS, NARROW
from tests.connectors.trino.driver import execute, opened, stored

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]

TARGET = Target("ns/rights", "trino", "h", "t")


def test_a_right_that_is_missing_is_named(
    trino: devservers.Trino, trino_schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    """To read and to add rows is enough for a flow that appends: exactly once, too."""
    execute(trino, f"CREATE TABLE lake.{trino_schema}.target (id bigint, name varchar)")
    config = {"serverURL": trino.uri, "catalog": "lake", "schema": trino_schema, "table": "target"}
    narrow = {**config, "user": NARROW}
    session = TrinoSink.model_validate(narrow).open(TARGET, Run())
    session.close()
    whole = TrinoSink.model_validate(config).open(TARGET, Run())
    whole.close()
    assert session.table.identity == whole.table.identity, "else the table would be another one"
    assert session.table.identity != f"lake.{trino_schema}.target", (
        "else a new one would be the same"
    )
    assert "at least once" not in caplog.text
    keyed = {"upsertMode": True, "conflictKey": "id"}
    with pytest.raises(PermanentError) as caught:
        TrinoSink.model_validate(narrow | keyed).open(TARGET, Run())
    place = f"lake.{trino_schema}.target"
    assert (
        f"the user of the flow needs the right to SELECT, INSERT, UPDATE and DELETE on {place}: "
        "Access Denied"
    ) in str(caught.value)
    TrinoSink.model_validate(config | keyed).open(TARGET, Run()).close()


def test_the_files_must_be_readable_before_a_statement_is_in_doubt(
    trino: devservers.Trino, trino_schema: str
) -> None:
    """They are asked only then, when every later opening would stop: the one of `reset`, too."""
    execute(trino, f"CREATE TABLE lake.{trino_schema}.target (id bigint, name varchar)")
    config = {"serverURL": trino.uri, "catalog": "lake", "schema": trino_schema, "table": "target"}
    with pytest.raises(PermanentError) as caught:
        TrinoSink.model_validate({**config, "user": FILELESS}).open(TARGET, Run())
    hidden = f'"lake"."{trino_schema}"."target$files"'
    assert f"needs the right to SELECT from {hidden}: Access Denied" in str(caught.value)


def test_rows_that_the_user_may_not_delete_are_taken_out_by_a_person(
    trino: devservers.Trino, trino_schema: str
) -> None:
    """It is known before anything is recorded: else every later run would stop, `reset` too."""
    place = f"lake.{trino_schema}.target"
    execute(trino, f"CREATE TABLE {place} (id bigint, name varchar)")
    execute(trino, f"INSERT INTO {place} VALUES (1, 'one')")
    config = {"serverURL": trino.uri, "catalog": "lake", "schema": trino_schema, "table": "target"}
    sink = TrinoSink.model_validate({**config, "user": NARROW})
    refused = rf"truncate cannot delete the rows of {place}: .*\(PERMISSION_DENIED\)\. Make sure"
    session = opened(sink, TARGET, "first")
    session.restart({"0": 3}, "source")
    with pytest.raises(PermanentError, match=refused):
        session.restart({"0": 0}, "source", empty=True)
    session.close()
    session = opened(sink, TARGET, "second")
    assert session.checkpoint.positions == {"0": 3}
    stored(session, 3, [2, "two"])
    session._store.checkpoints.move(
        lambda _: session._state, emptying=True
    )  # the right was taken since
    session.close()
    with pytest.raises(PermanentError, match=refused):
        opened(sink, TARGET, "third")
    execute(trino, f"DELETE FROM {place}")
    opened(sink, TARGET, "fourth").close()
    session = opened(sink, TARGET, "fifth")
    session.restart({"0": 0}, "source", empty=True)
    assert session.checkpoint.positions == {"0": 0}
    session.forget()
    session.close()
