"""Columns that Trino cannot match rows by."""

from __future__ import annotations

import pytest

from dataflow_assets.connectors.trino.table.capabilities import Capabilities, check_upsert
from dataflow_assets.connectors.trino.table.table import Column, TrinoPlace, TrinoTable
from dataflow_assets.errors import PermanentError


@pytest.mark.parametrize("kind", ["double", "real"])
def test_a_key_that_may_be_nan(kind: str) -> None:
    """It would equal no stored one, not even itself."""
    able = Capabilities(snapshots=True, merge=True)
    table = TrinoTable(TrinoPlace("lake", "shop", "t"), (Column("k", kind), Column("v", kind)), "1")
    with pytest.raises(PermanentError, match=rf"cannot be matched by k \({kind}\): a NaN"):
        check_upsert(table, able, ("k",))
    check_upsert(
        TrinoTable(table.place, (Column("k", "bigint"), Column("v", kind)), "1"), able, ("k",)
    )
