"""What the folding of keys does to matrices of columns."""

from __future__ import annotations

import numpy as np
import pytest

from dataflow_assets.sdk.key_folding import distinct


@pytest.mark.parametrize("columns", [1, 7, 8, 9, 70])
@pytest.mark.parametrize("kinds", [1, 5])
def test_distinct_rows_are_those_of_numpy(columns: int, kinds: int) -> None:
    random = np.random.default_rng(columns)
    known = random.random((kinds, columns)) < 0.5
    rows = known[random.integers(0, kinds, 1_000)]
    found, which = distinct(rows)
    expected, numbers = np.unique(rows, axis=0, return_inverse=True)
    assert (found == expected).all()
    assert (which == numbers.reshape(-1)).all()
    assert (found[which] == rows).all()


def test_no_rows_are_of_no_kind() -> None:
    found, which = distinct(np.zeros((0, 3), np.bool_))
    assert (len(found), len(which)) == (0, 0)
