"""A replay that was cut off is repeated with the same moment, or its rows would be others."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from dataflow_assets.contracts import Rejects
from dataflow_assets.errors import TransientError
from dataflow_assets.flow import Flow
from dataflow_assets.records.chain import Transformation
from dataflow_assets.transforms.insert_field import InsertField
from tests.contract.clickhouse_drivers import Clickhouse
from tests.contract.test_replays import TABLE, UNKNOWN, Replaying


class Stamping(Replaying):
    """Each record gets the moment that its steps call now."""

    def flow(self) -> Flow:
        flow = super().flow()
        step = Transformation(InsertField.model_validate({"fields": {"name": "${now}"}}))
        return replace(flow, transformations=(step,))


@pytest.mark.crash
def test_steps_that_ask_for_the_time(
    request: pytest.FixtureRequest, engine: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Stamping(request, engine, "clickhouse", TABLE)
    assert isinstance(case.sink, Clickhouse)
    case.sink.query("drop table target sync")
    case.sink.query(
        "create table target (id Int64, name String) engine = MergeTree order by id "
        "partition by id settings non_replicated_deduplication_window = 1000"
    )
    case.source.seed([], raw=UNKNOWN)
    case.drain(Rejects())
    case.mended = True
    with monkeypatch.context() as patch:
        patch.setenv("DATAFLOW_FAILPOINT", "clickhouse.inserted:raise")
        patch.setenv("DATAFLOW_FAILPOINT_TOKEN", uuid.uuid4().hex)
        with pytest.raises(TransientError):
            case.replay()
    assert case.replay() == [(2, 2, 0)]
    assert case.ids() == [100, 101]
