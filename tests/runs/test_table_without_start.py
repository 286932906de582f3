"""What `table` says without `start`: a checkpoint is needed, and rows are not taken out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from dataflow_assets.errors import PermanentError
from dataflow_assets.runs.request import Start
from tests.runs.test_replaying import Stores

ADOPT = Start(table="adopt")


@pytest.fixture
def one(engine: SparkSession) -> Iterator[Stores]:
    stores = Stores(engine)
    stores.branched = False
    stores.stores[0].produce("topic", 0, [b'{"id": 1}', b'{"id": 2}'])
    yield stores
    stores.remove()


def test_a_table_with_rows_is_not_filled_once_more(one: Stores) -> None:
    one.drain()
    one.stores[0].query("delete from checkpoints")  # moved to a schema without it, or not restored
    with pytest.raises(PermanentError, match="no checkpoint to go on from"):
        one.drain(ADOPT)
    assert one.ids(0) == [1, 2]
    one.drain(Start("latest", confirmed=True))
    one.drain(ADOPT)
    assert one.ids(0) == [1, 2]


def test_an_empty_table_is_filled(one: Stores) -> None:
    one.drain(ADOPT)
    assert one.ids(0) == [1, 2]


def test_rows_are_not_taken_out_without_being_read_again(one: Stores) -> None:
    one.drain()
    with pytest.raises(PermanentError, match="truncate cannot be used without start"):
        one.drain(Start(table="truncate"))
    assert one.ids(0) == [1, 2]
