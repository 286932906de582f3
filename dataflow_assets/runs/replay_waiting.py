"""The entries of a flow that wait for a replay, in all the stores that keep some of them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from dataflow_assets.contracts import Entries, Entry, EntryName
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.runs.replay_entries import WHOLE, is_for, token_of
from dataflow_assets.sdk.record_ids import REPLAY, message_of

log = logging.getLogger(__name__)

LOOKED_AT = 20_000  # entries of one store in one replay
_EVERYTHING = 2**31 - 1


@dataclass(frozen=True)
class Waiting:
    """The entries of one poll, the oldest of each store."""

    flow: Flow
    found: tuple[tuple[Entries, Mapping[str, Entry]], ...]
    """Each store with its entries by their ids."""
    whole: bool
    """False: a store has more of them than were looked at."""

    @classmethod
    def look(
        cls, flow: Flow, stores: Iterable[Entries], since: datetime | None, most: int | None = None
    ) -> Waiting:
        """Returns what waits now. Raises what a store raises that cannot be read."""
        most = most or LOOKED_AT
        listed = [(store, store.pending(flow.id, since, most)) for store in stores]
        whole = all(len(entries) < most for _, entries in listed)
        return cls(
            flow,
            tuple((s, {one.id: one for one in rows}) for s, rows in listed),
            whole,
        )

    @cached_property
    def entries(self) -> list[Entry]:
        """Returns those to put back: of each message only what its latest reading has left."""
        return [one for one in self._entries if not self._is_over(one)]

    @cached_property
    def tokens(self) -> frozenset[str] | None:
        """Tokens of all that wait; None where there are more than were looked at."""
        return frozenset(map(token_of, self._entries)) if self.whole else None

    def entries_of(self, names: Sequence[EntryName]) -> list[Entry]:
        """Returns those of these names that still wait: somebody may have deleted the others."""
        chosen = frozenset(names)
        entries = [one for one in self.entries if one.name in chosen]
        if len(entries) < len(chosen) and not self.whole:
            stores = (store for store, _ in self.found)
            return Waiting.look(self.flow, stores, None, _EVERYTHING).entries_of(names)
        return entries

    def note(self, entries: Sequence[Entry]) -> None:
        """Says in their stores that these have had their replay."""
        for store, entries_of_store in self.found:
            if mine := [one for one in entries if one.id in entries_of_store]:
                store.mark_replayed(mine)

    def drop_superseded(self) -> None:
        """Notes those whose records a rewound flow has rejected once more: these wait instead."""
        if old := [one for one in self._entries if self._is_over(one)]:
            log.info("flow %s: %d entries are superseded by later ones", self.flow.id, len(old))
            self.note(old)

    def is_superseded(self, entry: Entry, branch: Branch) -> bool:
        """Returns whether the branch has rejected this message in a later reading as well."""
        message = message_of(entry.id)
        latest = max(self._latest.get((message, of), 0) for of in (branch.stored_id, None))
        return entry.reading < latest

    def _is_over(self, entry: Entry) -> bool:
        """Superseded in each branch that it is for: of others nobody knows."""
        branches = [branch for branch in self.flow.branches if is_for(branch, entry)]
        return bool(branches) and all(self.is_superseded(entry, branch) for branch in branches)

    @cached_property
    def _latest(self) -> dict[tuple[str, str | None], int]:
        latest: dict[tuple[str, str | None], int] = {}
        for one in self._entries:
            branch = None if one.stage in WHOLE else one.branch.removesuffix(REPLAY)
            key = message_of(one.id), branch
            latest[key] = max(one.reading, latest.get(key, 0))
        return latest

    @cached_property
    def _entries(self) -> list[Entry]:
        """Each once: branches may share a store."""
        by_id = {name: one for _, entries in self.found for name, one in entries.items()}
        return list(by_id.values())
