"""Sources that cannot be asked: since when, who is told of it, and which flows left their lane.

While a source cannot be asked, runs would only fail. Somebody who watches failed runs must hear of
it all the same: one run of one flow fails for each server that is away, and for each table that
does not exist.
"""

import time
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

from dataflow_assets.assets.lane_departures import Departure
from dataflow_assets.errors import DataflowError, TransientError
from dataflow_assets.flow import Flow
from sensors.sources import News

TOLD_SECONDS = 120.0  # servers are started again, tables are made by other flows
NOTICED_SECONDS = 60.0  # after a flow has left its lane, its source is asked with the next tick


@dataclass(frozen=True)
class _Outage:
    since: float
    """In seconds since 1970."""
    shared: Hashable
    """What flows have in common for which one run is enough."""

    @property
    def lasts(self) -> bool:
        return time.time() - self.since >= TOLD_SECONDS


class Outages:
    """The flows whose source cannot be asked; used by one thread."""

    def __init__(self) -> None:
        self._known: dict[str, _Outage] = {}
        self._told: set[Hashable] = set()

    def look(self, flows: Iterable[Flow], news: Mapping[str, News]) -> dict[str, float]:
        """Notes which sources can be asked.

        Called with each tick of the sensor `ingest`.

        Args:
            flows: those that no lane drives.
            news: by the id of a flow what its source has answered; without those that runs of their
                own drive.

        Returns:
            By its id each flow whose source can be asked again, and since when it could not be.
        """
        before, self._known, over = self._known, {}, {}
        for flow in flows:
            answer, known = news.get(flow.id), before.get(flow.id)
            if isinstance(answer, DataflowError):
                since = known.since if known else time.time()
                self._known[flow.id] = _Outage(since, _shared(flow, answer))
            elif known and answer is None:
                self._known[flow.id] = known
            elif known:
                over[flow.id] = known.since
        self._told &= {one.shared for one in self._known.values()}
        return over

    def due(self, flows: Iterable[Flow]) -> list[Flow]:
        """Flows of which a run is to fail, so that somebody hears of the outage."""
        found: dict[Hashable, Flow] = {}
        for flow in flows:
            known = self._known.get(flow.id)
            if known and known.shared not in self._told and known.lasts:
                found.setdefault(known.shared, flow)
        return list(found.values())

    def tell(self, flow: Flow) -> None:
        """A run of the flow is being started: no other is needed as long as the outage lasts."""
        if known := self._known.get(flow.id):
            self._told.add(known.shared)


def has_caused(since: float, departure: Departure) -> bool:
    """Whether a flow has left its lane because its source could not be asked any more."""
    return since - departure.at < NOTICED_SECONDS


def _shared(flow: Flow, error: DataflowError) -> Hashable:
    """A server that is away is away for all; what else is wrong is wrong with the flow's own."""
    address = flow.source_address
    away = isinstance(error, TransientError)
    return (address.system, address.connection) if away else flow.id
