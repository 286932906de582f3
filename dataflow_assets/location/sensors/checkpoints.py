"""Positions of branches, for sensors: by the mirror, and now and then by the sink itself.

The mirror costs little, but nobody tells it of `dataflow reset`, of a restored database, or of
runs on the command line. So the sinks are asked when a sensor first looks, and every few minutes,
all tables of one database over one connection; what they say holds until a run reports another
checkpoint.
"""

import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import dagster as dg

from dataflow_assets.assets.graph import AssetNode, Key
from dataflow_assets.assets.mirror import positions
from dataflow_assets.assets.mirrored_checkpoints import Mirrored, mirrored_together
from dataflow_assets.contracts import Checkpoint, Positions, Sink, Target
from dataflow_assets.errors import DataflowError, outcome
from dataflow_assets.runs.questions import Question, group_ends, peek_all
from dataflow_assets.runs.redaction import mask

TRUTH_SECONDS = 180.0
RETRY_SECONDS = 30.0
PATIENCE = 5.0  # seconds in which sinks usually answer

log = logging.getLogger("dataflow")

Known = Positions | DataflowError | None
"""None where the sink has no checkpoint; an error where there is no mirror and no answer."""


@dataclass(frozen=True)
class _CheckpointPoll:
    """The sink's answer, with the manifest, the mirror at that time, and when to ask again."""

    manifest: str
    mirror: Any
    found: Known
    again: float


class Checkpoints:
    """The positions of branches, shared by all sensors of the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._looks: dict[Key, _CheckpointPoll] = {}
        self._mirrors = _Mirrors()

    def positions(
        self, instance: dg.DagsterInstance, nodes: Sequence[AssetNode]
    ) -> dict[Key, Known]:
        with self._lock:
            read = self._mirrors.read(instance, [node.key for node in nodes])
            mirrors = {key: one.checkpoint for key, one in read.items()}
            due = [node for node in nodes if self._due(node, mirrors[node.key])]
            for node, answer in zip(due, _ask(due), strict=True):
                self._looks[node.key] = self._look(node, mirrors[node.key], answer)
            return {node.key: self._find(node, mirrors[node.key]) for node in nodes}

    def mirrors(
        self, instance: dg.DagsterInstance, nodes: Sequence[AssetNode]
    ) -> Mapping[Key, Mirrored]:
        with self._lock:
            return self._mirrors.read(instance, [node.key for node in nodes])

    def _find(self, node: AssetNode, mirror: Any) -> Known:
        look = self._looks[node.key]
        return look.found if look.mirror == mirror else positions(mirror)

    def _due(self, node: AssetNode, mirror: Any) -> bool:
        look = self._looks.get(node.key)
        if look is None or look.manifest != node.flow.hash or look.again <= time.monotonic():
            return True
        return mirror is None  # nothing else says where the branch stands

    def _look(self, node: AssetNode, mirror: Any, answer: Known) -> _CheckpointPoll:
        """A sink that cannot be asked changes nothing: the run that needs it says so."""
        before, wait = self._looks.get(node.key), TRUTH_SECONDS
        if isinstance(answer, DataflowError):
            text = f"{node.branch.address}: no checkpoint can be read: {answer}"
            log.info(mask(text, [node.flow]))
            wait = RETRY_SECONDS
            if mirror is not None:
                same = before is not None and before.mirror == mirror
                answer = before.found if before is not None and same else positions(mirror)
        return _CheckpointPoll(node.flow.hash, mirror, answer, time.monotonic() + wait)


class _Mirrors:
    """The mirrored checkpoints; read again only when Dagster has stored an event since."""

    def __init__(self) -> None:
        self._state: tuple[str, int | None] = ("", None)
        self._until = 0.0
        self._known: dict[Key, Mirrored] = {}

    def read(self, instance: dg.DagsterInstance, keys: Iterable[Key]) -> dict[Key, Mirrored]:
        newest = instance.event_log_storage.get_maximum_record_id()
        whose = str(instance.get_ref() if instance.is_persistent else id(instance))
        state = (whose, newest)
        now = time.monotonic()
        if state != self._state or now >= self._until:  # what is deleted stores no event
            self._state, self._until, self._known = state, now + TRUTH_SECONDS, {}
        all_keys = list(keys)
        missing = [key for key in all_keys if key not in self._known]
        self._known.update(mirrored_together(instance, missing))
        return {key: self._known[key] for key in all_keys}


def _ask(nodes: Sequence[AssetNode]) -> list[Known]:
    found: dict[int, Known] = {}
    ends: dict[int, tuple[Sink, Target]] = {}
    for number, node in enumerate(nodes):
        end = outcome(partial(_end, node))
        if isinstance(end, DataflowError):
            found[number] = end
        else:
            ends[number] = end
    asking = [
        Question(sinks, partial(_peek, {number: ends[number] for number in sinks}))
        for sinks in group_ends((number, sink) for number, (sink, _) in ends.items()).values()
    ]
    for question in asking:
        answers = question.answers(PATIENCE)
        found |= {number: _positions(answer) for number, answer in answers.items()}
    return [found[number] for number in range(len(nodes))]


def _end(node: AssetNode) -> tuple[Sink, Target]:
    """The branch's sink with all secrets in place."""
    flow = node.flow.resolve()
    branch = next(branch for branch in flow.branches if branch.id == node.branch.id)
    return branch.sink, flow.target(branch)


def _peek(
    asked: Mapping[int, tuple[Sink, Target]],
) -> Mapping[int, Checkpoint | DataflowError | None]:
    sinks = list(asked.values())
    return dict(zip(asked, peek_all(sinks), strict=True))


def _positions(answer: Checkpoint | DataflowError | None) -> Known:
    if answer is None or isinstance(answer, DataflowError):
        return answer
    return answer.positions or None


checkpoints = Checkpoints()
