"""Which keys are one key, asked of the server: each spelling once, through the temporary table."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from dataflow_assets.connectors.postgresql.errors import Failure
from dataflow_assets.connectors.postgresql.sink.key_order import Ints, firsts
from dataflow_assets.connectors.postgresql.sink.refused_rows import Trial
from dataflow_assets.connectors.postgresql.sink.upsert import Staging
from dataflow_assets.connectors.postgresql.sink.upsert_rules import POSITION


def ask(
    rows: pa.RecordBatch, codes: Ints, staging: Staging, trial: Trial
) -> tuple[Mapping[int, Failure], Ints]:
    """(why the server refuses a spelling; for each spelling the first one equal to it).

    `codes`: the number of each row's spelling.
    """
    asked = rows.take(pa.array(firsts(codes)))
    asked = asked.append_column(POSITION, pa.array(np.arange(asked.num_rows)))
    failures = trial.run(asked, staging.stage_keys)
    refused = {row.column(POSITION)[0].as_py(): failure for row, failure in failures}
    if refused:  # the others were staged in pieces
        staging.stage_keys(_without(asked, list(refused)))
    first = np.arange(asked.num_rows, dtype=np.int64)
    for position, equal in staging.alike():
        first[position] = equal
    return refused, first


def _without(asked: pa.RecordBatch, positions: list[int]) -> pa.RecordBatch:
    wrong = np.isin(asked.column(POSITION).to_numpy(), positions)
    return asked.filter(pa.array(~wrong))
