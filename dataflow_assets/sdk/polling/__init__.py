"""Tables and queries that are read by polling: what such sources share, whatever the database.

A position is a pair of a change value and an order value; a first load goes by the order value up
to a pair that was fixed before. Each database answers the questions of `Polled`.
"""

from dataflow_assets.sdk.polling.polled import Polled
from dataflow_assets.sdk.polling.positions import (
    NOTHING,
    PARTITION,
    START,
    Pair,
    Part,
    PolledPosition,
    Rows,
    moment,
    position_of_operator,
)
from dataflow_assets.sdk.polling.session import PolledSession
from dataflow_assets.sdk.polling.source import PolledSource

__all__ = [
    "NOTHING",
    "PARTITION",
    "START",
    "Pair",
    "Part",
    "Polled",
    "PolledPosition",
    "PolledSession",
    "PolledSource",
    "Rows",
    "moment",
    "position_of_operator",
]
