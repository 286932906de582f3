"""Where checkpoints are kept: a table of a catalog that has UPDATE, one row for each branch.

A row is changed by compare-and-set: UPDATE ... WHERE stamp = the one that was read. Each change has
a stamp of its own, so that an answer that was lost is found out, and so that the statement which
writes rows can ask whether it may still.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import msgspec

from dataflow_assets.connectors.trino.client import TrinoClient, literal
from dataflow_assets.connectors.trino.errors import CONFLICT, MISSING, TrinoFailure
from dataflow_assets.connectors.trino.options import TrinoSinkOptions
from dataflow_assets.connectors.trino.table.document import TrinoDocument, TrinoStored, parse
from dataflow_assets.connectors.trino.table.table import TrinoPlace
from dataflow_assets.contracts import Checkpoint, Target
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.sdk.sink.checkpoint_store import StateChange

NAME = "dataflow_checkpoints"
_BESIDE = " in doubt"
"""Ends the ids of rows in which an earlier version kept the checkpoints of statements in doubt."""
_TRIES = 8
_CONFLICTS = frozenset({CONFLICT, "TRANSACTION_CONFLICT", "ICEBERG_CANNOT_OPEN_SPLIT"})
_COLUMNS = "id varchar, flow varchar, epoch bigint, stamp varchar, state varchar"
_BY_BRANCH = " WITH (partitioning = ARRAY['id'])"
GONE = "another run has taken over, rows of the checkpoint with the stamp of this one: "
_NOT_ABLE = frozenset({"NOT_SUPPORTED", "PERMISSION_DENIED", "INVALID_TABLE_PROPERTY"})


class TrinoCheckpointTable:
    """The row of one branch. Methods raise Failure where Trino does not answer.

    Not the reading fences a second driver, but the change: it asserts the stamp of the row that
    its step has seen. So the row is read once for each micro-batch, and remembered from there on.
    """

    def __init__(self, client: TrinoClient, sink: TrinoSinkOptions, target: Target) -> None:
        self._client, self._target = client, target
        self.place = place_of(sink)
        self._where = f"id = {literal(target.id)}"
        self._seen: TrinoStored | None = None

    def create(self) -> None:
        """Makes the table where it is missing, else reads the row. Called when a session opens."""
        try:
            self.load()
        except TrinoFailure as failure:
            if failure.name not in MISSING:
                raise
            self._make()

    def _make(self) -> None:
        ddl = f"CREATE TABLE IF NOT EXISTS {self.place.quoted_name} ({_COLUMNS})"
        try:
            self._client.create(ddl + _BY_BRANCH)
        except TrinoFailure as failure:
            if failure.transient:
                raise
            self._client.create(ddl)

    def load(self) -> TrinoStored | None:
        """The row as it is now; None where there is none."""
        stored = self._client.rows(
            f"SELECT stamp, state FROM {self.place.quoted_name} WHERE {self._where}"  # noqa: S608 - quoted
        )
        rows = [TrinoStored(stamp, parse(state)) for stamp, state in stored]
        self._seen = self._choose_row(rows) if len(rows) > 1 else next(iter(rows), None)
        return self._seen

    def latest(self) -> TrinoStored | None:
        """The row as it was read or stored last; read now where that is not known."""
        return self._seen or self.load()

    def _choose_row(self, rows: Sequence[TrinoStored]) -> TrinoStored:
        """The row of the driver that went on, of several whose drivers began at once; else any.

        The others go: nothing is known by them, and a driver that ended before it could take its
        own back would stop the flow for good. A driver that lives, and whose row goes, finds that
        at its next change, which asserts its stamp: before that nothing of it can be stored.
        """
        begun = [one for one in rows if one.document.tells]
        if len(begun) > 1:
            raise PermanentError(
                f"{self.place} has {len(begun)} checkpoints of flow {self._target.flow}, which no "
                f"run leaves behind; look at its rows WHERE {self._where} and delete all but the "
                "right one"
            )
        kept = max(begun or rows, key=_order)
        for one in rows:
            if one.stamp != kept.stamp:
                self._drop(one.stamp)
        return kept

    def _drop(self, stamp: str) -> None:
        self._client.run(f"DELETE FROM {self._row_with_stamp(stamp)}")  # noqa: S608 - quoted

    def move(self, step: StateChange, **changes: object) -> TrinoStored:
        """Stores what the step makes of what is stored.

        Args:
            step: pure; called again where somebody else was first. What it raises is raised.
            changes: fields of `Document` that become these values; the others stay.
        """
        for _ in range(_TRIES):
            last = self.latest()
            state = step(last.state if last else None)
            document = last.document if last else TrinoDocument(state.checkpoint)
            document = msgspec.structs.replace(
                document, checkpoint=state.checkpoint, intent=state.intent, **changes
            )
            if (stored := self.swap(last, document)) is not None:
                return stored
        raise TransientError(
            f"{self.place}: others change the row of flow {self._target.flow} faster than it can "
            f"be changed ({_TRIES} times)"
        )

    def swap(
        self, found: TrinoStored | None, document: TrinoDocument, stamp: str = ""
    ) -> TrinoStored | None:
        """Stores the document in place of what was found; None where somebody was first.

        Args:
            found: as `load` has returned it.
            document: what to store.
            stamp: under which; empty for a new one.
        """
        self._seen = None  # until the answer is there
        self._seen = self._swap(found, TrinoStored(stamp or uuid.uuid4().hex, document))
        return self._seen

    def _swap(self, found: TrinoStored | None, stored: TrinoStored) -> TrinoStored | None:
        try:
            changed = self._client.run(self._statement(found, stored))
        except TrinoFailure as failure:
            if failure.name in _CONFLICTS:
                return None
            if failure.name in _NOT_ABLE:
                raise self._refusal(failure) from None
            if not self._is(stored.stamp):
                raise
            return stored
        return self._alone(stored) if found is None else (stored if changed == 1 else None)

    def after(self, document: TrinoDocument, query: str) -> Checkpoint | None:
        """What is true if a statement in doubt has stored its rows; None where nothing tells."""
        for one in document.whole:
            if one.query == query:
                return one.checkpoint
        text = self._client.value(
            f"SELECT state FROM {self.place.quoted_name} "  # noqa: S608 - quoted
            f"WHERE id = {literal(self._target.id + _BESIDE)} AND stamp = {literal(query)} LIMIT 1"
        )
        return parse(str(text)).checkpoint if text else None

    def may_write(self, stamp: str) -> str:
        """The condition that the row still has this stamp, as SQL inside another statement."""
        return f"EXISTS (SELECT 1 FROM {self._row_with_stamp(stamp)})"  # noqa: S608 - quoted

    def must_write(self, stamp: str) -> str:
        """The same condition, without which the statement fails instead of doing nothing.

        A statement that has written nothing ends as well as one that has committed, and a catalog
        without snapshots tells the two apart by their ends only. What fails is a cast that cannot
        succeed, of a number that is known only when the statement runs.
        """
        refused = f"CAST({literal(GONE)} || CAST(count(*) AS varchar) AS bigint) = 0"
        return f"(SELECT IF(count(*) > 0, true, {refused}) FROM {self._row_with_stamp(stamp)})"  # noqa: S608

    def _row_with_stamp(self, stamp: str) -> str:
        return f"{self.place.quoted_name} WHERE {self._where} AND stamp = {literal(stamp)}"

    def others(self, identity: str | None) -> dict[str, str]:
        """By the other flows into the table of this identity: what removes a checkpoint."""
        rows = self._client.rows(f"SELECT id, flow, state FROM {self.place.quoted_name}")  # noqa: S608
        return {
            flow: f"DELETE FROM {self.place} WHERE id = {literal(name)}"  # noqa: S608 - is shown only
            for name, flow, state in rows
            if flow != self._target.flow
            and not name.endswith(_BESIDE)
            and parse(state).checkpoint.target == identity
        }

    def _statement(self, found: TrinoStored | None, stored: TrinoStored) -> str:
        epoch = stored.document.checkpoint.epoch
        state = literal(msgspec.json.encode(stored.document).decode())
        stamp = literal(stored.stamp)
        if found is None:
            names = f"{literal(self._target.id)}, {literal(self._target.flow)}"
            chosen = f"SELECT {names}, BIGINT '{epoch}', {stamp}, {state}"
            none = f"NOT EXISTS (SELECT 1 FROM {self.place.quoted_name} WHERE {self._where})"  # noqa: S608
            return f"INSERT INTO {self.place.quoted_name} {chosen} WHERE {none}"
        values = f"epoch = {epoch}, stamp = {stamp}, state = {state}"
        held = f"{self._where} AND stamp = {literal(found.stamp)}"
        return f"UPDATE {self.place.quoted_name} SET {values} WHERE {held}"  # noqa: S608 - quoted

    def _is(self, stamp: str) -> bool:
        last = self.load()
        return last is not None and last.stamp == stamp

    def _alone(self, stored: TrinoStored) -> TrinoStored | None:
        """The first row of a branch: of two that were made at once both go."""
        stamps = self._client.rows(
            f"SELECT stamp FROM {self.place.quoted_name} WHERE {self._where}"  # noqa: S608 - quoted
        )
        if [stored.stamp] == [stamp for (stamp,) in stamps]:
            return stored
        self._drop(stored.stamp)
        return None

    def _refusal(self, failure: TrinoFailure) -> PermanentError:
        return PermanentError(
            f"catalog {self.place.catalog} cannot keep a checkpoint, which needs UPDATE: "
            f"{failure.reason}; set checkpointTable to a table of a catalog that can, such as "
            "Iceberg's or PostgreSQL's (schema.table or catalog.schema.table)"
        )


def _order(stored: TrinoStored) -> tuple[int, str]:
    """Whoever looks at the same rows keeps the same one."""
    return stored.document.checkpoint.epoch, stored.stamp


def place_of(sink: TrinoSinkOptions) -> TrinoPlace:
    """Returns where the checkpoint of a sink is. Secrets must be resolved."""
    catalog, schema = sink.catalog or "", sink.place()[0]
    names = (sink.checkpoint_table or NAME).split(".")
    return TrinoPlace(*[catalog, schema][: 3 - len(names)], *names)


def peek(
    client: TrinoClient, sink: TrinoSinkOptions, targets: Sequence[Target]
) -> list[TrinoDocument | None]:
    """What is stored of several branches, without an epoch; None for nothing. Raises Failure."""
    place = place_of(sink)
    ids = ", ".join(literal(target.id) for target in targets)
    try:
        rows = client.rows(f"SELECT id, state FROM {place.quoted_name} WHERE id IN ({ids})")  # noqa: S608
    except TrinoFailure as failure:
        if failure.name not in MISSING:
            raise
        rows = []
    by_id = {name: parse(state) for name, state in rows}
    return [by_id.get(target.id) for target in targets]
