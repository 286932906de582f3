"""The entries of a flow that wait for a replay, in all the stores that keep some of them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from dataflow_assets.contracts import Entries, Entry
from dataflow_assets.contracts.rejects import Name

log = logging.getLogger(__name__)

LOOKED_AT = 20_000  # entries of one store in one replay
_EVERYTHING = 2**31 - 1


@dataclass(frozen=True)
class Waiting:
    """As of one look: the oldest entries of each store."""

    flow: str
    found: tuple[tuple[Entries, Mapping[str, Entry]], ...]
    """Each store with its entries by their ids."""
    whole: bool
    """False: a store has more of them than were looked at."""

    @classmethod
    def look(
        cls, flow: str, stores: Iterable[Entries], since: datetime | None, most: int | None = None
    ) -> Waiting:
        """What waits now. Raises what a store raises that cannot be read."""
        most = most or LOOKED_AT
        listed = [(store, store.pending(flow, since, most)) for store in stores]
        whole = all(len(entries) < most for _, entries in listed)
        return cls(flow, tuple((s, {one.id: one for one in found}) for s, found in listed), whole)

    @cached_property
    def entries(self) -> list[Entry]:
        """Those to put back: of each record only what its latest reading has left."""
        known = self._known()
        latest = _latest(known)
        return [one for one in known if one.reading == latest[one.record]]

    @cached_property
    def tokens(self) -> frozenset[str] | None:
        """Of all that wait; None where there are more than were looked at."""
        return frozenset(one.token for one in self._known()) if self.whole else None

    def named(self, names: Sequence[Name]) -> list[Entry]:
        """Those of these names that still wait: somebody may have deleted the others."""
        wanted = frozenset(names)
        found = [one for one in self.entries if one.name in wanted]
        if len(found) < len(wanted) and not self.whole:
            stores = (store for store, _ in self.found)
            return Waiting.look(self.flow, stores, None, _EVERYTHING).named(names)
        return found

    def note(self, entries: Sequence[Entry]) -> None:
        """Says in their stores that these have had their replay."""
        for store, found in self.found:
            if mine := [one for one in entries if one.id in found]:
                store.replayed(mine)

    def drop_superseded(self) -> None:
        """Notes those whose records a rewound flow has rejected once more: these wait instead."""
        known = self._known()
        latest = _latest(known)
        if old := [one for one in known if one.reading < latest[one.record]]:
            log.info("flow %s: %d entries are superseded by later ones", self.flow, len(old))
            self.note(old)

    def _known(self) -> list[Entry]:
        """Each once: branches may share a store."""
        by_id = {name: one for _, found in self.found for name, one in found.items()}
        return list(by_id.values())


def _latest(entries: Iterable[Entry]) -> dict[str, int]:
    """The latest reading in which each record was rejected."""
    latest: dict[str, int] = {}
    for one in entries:
        latest[one.record] = max(one.reading, latest.get(one.record, 0))
    return latest
