"""What an earlier version has stored of a flow is read on: no row is lost, none is there twice.

`README.md` beside this file says where the copies come from.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stored.flows import StoredFlow
from tests.stored.left import LEFT
from tests.stored.queries import FIRST, QUERIES, SECOND, THIRD, StoredQuery
from tests.stored.running import drain, replay
from tests.stored.tables import THIRD as THIRD_ROWS
from tests.stored.tables import StoredTable
from tests.stored.versions import copies


@pytest.mark.parametrize(("copy", "system"), copies(LEFT))
def test_a_flow_goes_on_exactly_where_an_earlier_version_was_killed(
    copy: Path, system: str, request: pytest.FixtureRequest
) -> None:
    """So does the replay: a record that was put back already is not put back again."""
    flow = StoredFlow(request, LEFT[system].system)
    flow.send_first()
    flow.send_second()
    flow.load(copy.read_text())
    flow.send_third()
    drain(flow.file)
    replay(flow.mended)
    assert flow.stores.rows() == flow.expected()
    assert replay(flow.mended) == 0
    assert flow.stores.rows() == flow.expected()


@pytest.mark.parametrize(("copy", "name"), copies(QUERIES))
def test_a_query_counts_on_from_the_state_of_an_earlier_version(
    copy: Path, name: str, request: pytest.FixtureRequest
) -> None:
    """The first messages are gone; a query that reads all of them has the same result."""
    query, anew = StoredQuery(request, QUERIES[name]), StoredQuery(request, QUERIES[name], "anew")
    query.send(FIRST)
    query.forget_messages()
    query.send(SECOND)
    query.load(copy.read_text())
    query.send(THIRD)
    drain(query.file)
    for numbers in (FIRST, SECOND, THIRD):
        anew.send(numbers)
    drain(anew.file)
    assert query.result() == anew.result()
    assert query.result()


@pytest.mark.parametrize(("copy", "_name"), copies(["table"]))
def test_a_table_is_read_on_behind_the_part_that_an_earlier_version_has_stored(
    copy: Path, _name: str, request: pytest.FixtureRequest
) -> None:
    flow = StoredTable(request)
    flow.load(copy.read_text())
    flow.insert(THIRD_ROWS)
    drain(flow.file)
    assert flow.stores.rows() == flow.expected()
