"""Changes of one group that cancel each other: its row is not computed again."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataflow_assets.languages.sql.state.driver import Limits
from dataflow_assets.languages.sql.state.source import ViewSource
from dataflow_assets.manifests.load import load
from dataflow_assets.testing import choose
from tests.languages.sql.state.test_model import LOG, Message, Run, Sink, log_source
from tests.languages.sql.test_rows import table

INNER = "SELECT g, COUNT(*) AS n, SUM(a) AS a FROM s GROUP BY g"


def row(key: int, group: str, number: int) -> Message:
    body = b'{"k":%d,"g":"%s","a":%d}' % (key, group.encode(), number)
    return b'{"k":%d}' % key, body


@pytest.mark.parametrize("few", [20_000, 0])
def test_groups_that_swap_their_rows_do_not_refuse_the_group_behind_them_again(
    folder: Path, few: int
) -> None:
    """On the driver both changes are one; of two buckets each sends one of its own."""
    file = folder / "one.sql"
    file.write_text(
        f"{table('s', 'k BIGINT, g STRING, a INT, PRIMARY KEY (k) NOT ENFORCED')}\n"
        f"{table('o', 'n BIGINT, q INT, PRIMARY KEY (n) NOT ENFORCED')}\n"
        f"INSERT INTO o SELECT n, 10 / (SUM(a) - 5) FROM ({INNER}) GROUP BY n;"
    )
    source = choose(load(file), None).source
    assert isinstance(source, ViewSource)
    run = Run(source, log_source(source.source), Sink(["n"]))
    LOG.clear()
    LOG["0"] = [row(1, "x", 2), row(2, "y", 3), row(1, "x", 3), row(2, "y", 2), row(2, "y", 4)]
    found = []
    for upto in (2, 4, 5):
        run.span({"0": upto}, Limits(few=few), small=True)
        assert run.manifest is not None
        found.append(sum(part.rows for part in run.manifest.parts))
    assert found == [1, 0, 1]
    assert list(run.sink.rows.values()) == [{"n": 1, "q": 5}]
