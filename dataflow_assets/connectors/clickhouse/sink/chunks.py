"""A slice as chunks: borders are recorded, rows inserted, chunks noted as done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from dataflow_assets import failpoints
from dataflow_assets.connectors.clickhouse.sink.checkpoint import BranchCheckpoint, CheckpointLog
from dataflow_assets.connectors.clickhouse.table.checkpoint_log import (
    Border,
    ClickhouseDone,
    ClickhousePartition,
    ClickhouseState,
)
from dataflow_assets.contracts import PartSlice, Position, Slice, Totals, utc_now
from dataflow_assets.errors import PermanentError, Stopped, TransientError
from dataflow_assets.sdk.sink.decide import check_planned, check_recorded


@dataclass(frozen=True)
class ClickhousePiece:
    """The rows of one slice between two positions, as they go into one chunk."""

    after: Position | None
    upto: Position
    token: str


@dataclass(frozen=True)
class ClickhouseRows:
    """What the writer of a slice can do with its rows."""

    digest: Callable[[ClickhousePiece], str]
    """Tells different rows from the same ones; empty where that does not matter."""
    insert: Callable[[ClickhousePiece, Border], Totals]
    """One INSERT under the piece's token; what was counted."""


class ClickhouseChunks:
    """Commits what was seen of one slice."""

    def __init__(
        self, branch: BranchCheckpoint, log: CheckpointLog, piece: Slice, name: str
    ) -> None:
        self._branch = branch
        self._log = log
        self._piece = piece
        self._name = name
        self._state: ClickhouseState | None = None

    @property
    def partition(self) -> ClickhousePartition:
        """Returns what is committed of the slice's partition."""
        known = self._load_state().partitions
        return known.get(self._piece.partition, ClickhousePartition(self._piece.after))

    def commit(self, seen: Position, rows: ClickhouseRows, at: datetime) -> None:
        """Everything before `seen`. Raises TransientError where others have recorded more."""
        while not self._has_reached(seen):
            state = self._load_state()
            border = state.pending.get(self._piece.partition)
            if border is None:
                state = self._check(self._propose(state, seen, rows, at))
                border = state.pending.get(self._piece.partition)
            self._state = state
            if border is not None:
                self._insert(state, border, seen, rows)

    def short(self, seen: int) -> bool:
        """Whether a recorded chunk goes on behind what was seen, which may be all there is."""
        border = self._load_state().pending.get(self._piece.partition)
        if border is None or not isinstance(border.upto, int):
            return False
        return seen < self._load_state().whole.get(self._piece.partition, border.upto)

    def _load_state(self) -> ClickhouseState:
        if self._state is None:
            # Whatever the clock of this task says, a part is newer than the parts before it.
            name = None if isinstance(self._piece, PartSlice) else self._piece.partition
            self._state = self._check(self._branch.read(name))
        return self._state

    def _check(self, state: ClickhouseState) -> ClickhouseState:
        """A state in which the slice is still to be committed from where it was planned."""
        piece, flow = self._piece, self._branch.flow
        check_recorded(flow, piece, state.branch.intent)
        known = state.partitions.get(piece.partition, ClickhousePartition(piece.after))
        check_planned(flow, piece, known.position)
        return state

    def _propose(
        self, state: ClickhouseState, seen: Position, rows: ClickhouseRows, at: datetime
    ) -> ClickhouseState:
        version = max(int(utc_now().timestamp() * 1_000_000), state.version + 1)
        digest = rows.digest(self._cut(state, seen))
        border = Border(seen, at, self._log.blocks, version, digest)
        state = self._branch.propose(state, self._piece.partition, border)
        failpoints.reach("clickhouse.recorded")
        return state

    def _insert(
        self, state: ClickhouseState, border: Border, seen: Position, rows: ClickhouseRows
    ) -> None:
        piece = self._cut(state, state.whole.get(self._piece.partition, border.upto))
        if isinstance(seen, int) and self.short(seen):
            raise TransientError(
                f"{self._name}: another run has recorded that the chunk from {piece.after} goes to "
                f"{border.upto}, and this one has read to {seen}"
            )
        if border.digest and border.digest != rows.digest(piece):
            raise self._differs(piece)
        try:
            totals = rows.insert(piece, border)
        except Stopped as held:  # the table has refused the whole INSERT: nothing of it stands
            # What lies before the record at which the flow stops is a chunk by itself.
            if isinstance(piece.after, int) and held.offset > piece.after:
                self._branch.whole(state, self._piece.partition, held.offset)
            raise
        failpoints.reach("clickhouse.inserted")
        at = utc_now()
        self._branch.record_done(state, self._piece.partition, ClickhouseDone(totals, at))
        failpoints.reach("clickhouse.done")
        moved = ClickhousePartition(piece.upto, self.partition.totals + totals, at, border.version)
        partitions = {**state.partitions, self._piece.partition: moved}
        self._state = replace(state, partitions=partitions, pending={}, whole={})

    def _cut(self, state: ClickhouseState, upto: Position) -> ClickhousePiece:
        name, generation = self._piece.partition, state.head.generation
        position = state.partitions[name].position
        token = f"{self._name}:{generation}:{name}:{state.after(name)}-{upto}"
        return ClickhousePiece(position, upto, token)

    def _has_reached(self, seen: Position) -> bool:
        position = self.partition.position
        if isinstance(seen, int):
            return isinstance(position, int) and position >= seen
        return position == seen

    def _differs(self, piece: ClickhousePiece) -> PermanentError:
        return PermanentError(
            f"{self._name}: partition {self._piece.partition} from {piece.after} to {piece.upto} "
            "was not finished by an earlier run, and its records give other rows now: in a table "
            "with PARTITION BY some of them may be stored already, while they would go into "
            "another partition of the table now. Run the manifest of that run once more, or look "
            "whether these records are in the table, and run dataflow reset with the "
            "position to go on from"
        )
