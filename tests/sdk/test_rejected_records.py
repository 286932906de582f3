"""What a flow says that stops at a record: what is wrong with it, and the ways out."""

from __future__ import annotations

import pytest

from dataflow_assets.contracts import OffsetSlice, Rejection, Rejects, Target
from dataflow_assets.errors import Stopped
from dataflow_assets.sdk.rejected_records import settle

ROW = b'{"id": 1, "discount": 2}'


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        (
            "Object contains unknown field `discount`",
            "add the column to the table, set unknownFields: ignore in the sink, or set onRejected",
        ),
        ("column total: expected a number", "fix the table, the steps or the record, or set onRe"),
    ],
)
def test_a_flow_that_stops_names_what_helps_against_the_reason(reason: str, advice: str) -> None:
    target = Target("default/a", "b", "m", "orders", rejects=Rejects(way="fail"))
    rejection = Rejection(7, "decode", reason, ROW)
    with pytest.raises(Stopped) as stopped:
        settle(target, OffsetSlice("0", 0, 10), [rejection], lambda _: None)
    said = str(stopped.value)
    assert f"offset 7, for b: decode: {reason}; the flow goes on once it can be stored" in said
    assert advice in said
