"""Flows that have left their lane with an error: why, and how often lately.

Kept in Dagster's own storage, one value per flow: all of them are one question. A flow stays out
until a run of its own has succeeded, or its manifest was edited.
"""

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace

import dagster as dg

from dataflow_assets.flow import Flow

LATELY_SECONDS = 600.0  # a flow that leaves again within that time waits longer


@dataclass(frozen=True)
class Note:
    """Why a flow left its lane. `back`: a run of its own has succeeded since."""

    at: float
    error: str
    manifest: str
    times: int = 1
    back: bool = False

    def out(self, flow: Flow) -> bool:
        """Whether the flow is out of its lane; an edited manifest is tried at once."""
        return not self.back and self.manifest == flow.version


class Notes:
    """The notes on all flows of an instance."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._storage = instance.daemon_cursor_storage

    def of(self, flows: Iterable[Flow]) -> Mapping[str, Note]:
        """By its id the note on each flow that is out."""
        known = {flow.id: flow for flow in flows}
        notes = self._read(known.values())
        return {name: note for name, note in notes.items() if note.out(known[name])}

    def leave(self, flow: Flow, error: str) -> None:
        """The flow has left its lane."""
        now, before = time.time(), self._read([flow]).get(flow.id)
        lately = before is not None and now - before.at < LATELY_SECONDS
        times = before.times + 1 if before and lately else 1
        self._write(flow, Note(now, error[:500], flow.version, times))

    def come_back(self, flow: Flow) -> None:
        """A run of the flow's own has succeeded: its lane may drive it again."""
        note = self._read([flow]).get(flow.id)
        if note is not None and not note.back:
            self._write(flow, replace(note, back=True))

    def _read(self, flows: Iterable[Flow]) -> dict[str, Note]:
        keys = {_key(flow): flow.id for flow in flows}
        found = self._storage.get_cursor_values(set(keys)) if keys else {}
        return {keys[key]: Note(**json.loads(text)) for key, text in found.items()}

    def _write(self, flow: Flow, note: Note) -> None:
        self._storage.set_cursor_values({_key(flow): json.dumps(asdict(note))})


def _key(flow: Flow) -> str:
    return f"dataflow/left/{flow.id}"
