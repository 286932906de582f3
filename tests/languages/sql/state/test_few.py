"""Which changes the driver merges: those of few keys that are small."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataflow_assets.languages.sql.state.driver import Limits
from dataflow_assets.languages.sql.state.source import ViewSource
from dataflow_assets.manifests.load import load
from dataflow_assets.testing import choose
from tests.languages.sql.state.test_model import LOG, Run, Sink, log_source
from tests.languages.sql.test_rows import table

ROWS = 500


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize(("most", "here"), [(1 << 20, True), (1_000, False)])
def test_all_values_of_one_group_are_merged_on_the_driver_only_where_they_are_small(
    folder: Path, most: int, *, here: bool, small: bool
) -> None:
    """MAX over rows that may go keeps every value: changes of one key, of any size."""
    file = folder / "one.sql"
    file.write_text(
        f"{table('s', 'k BIGINT, g INT, PRIMARY KEY (k) NOT ENFORCED')}\n"
        f"{table('o', 'g INT, n BIGINT, PRIMARY KEY (g) NOT ENFORCED')}\n"
        "INSERT INTO o SELECT g, MAX(k) FROM s GROUP BY g;"
    )
    source = choose(load(file), None).source
    assert isinstance(source, ViewSource)
    run = Run(source, log_source(source.source), Sink(["g"]))
    LOG.clear()
    LOG["0"] = [(b'{"k":%d}' % one, b'{"k":%d,"g":1}' % one) for one in range(ROWS)]
    run.span({"0": ROWS}, Limits(few_bytes=most), small=small)
    assert list(run.sink.rows.values()) == [{"g": 1, "n": ROWS - 1}]
    assert run.manifest is not None
    assert bool(run.manifest.tables["groups-0"].recent) == here
