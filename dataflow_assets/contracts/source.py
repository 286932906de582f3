"""The declared source of a flow."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

import pyarrow as pa

from dataflow_assets.contracts.connector import Address
from dataflow_assets.contracts.message_format import MessageFormat
from dataflow_assets.contracts.schema import TypeRow
from dataflow_assets.contracts.slices import Position, Positions, Span
from dataflow_assets.contracts.source_reader import SourceReader
from dataflow_assets.contracts.source_session import SourceSession
from dataflow_assets.errors import DataflowError, outcome
from dataflow_assets.spec import Addition

NullMessages = Literal["reject", "skip", "delete"]
NewColumnRule = Literal["reject", "fail", "add", "ignore"]
"""What becomes of a column that the table of a source has and the target lacks."""


@dataclass(frozen=True)
class Offset:
    """Where one task of a source has come to, for people: two JSON objects."""

    task: int
    key: Mapping[str, Any]
    value: Mapping[str, Any]


class Source(SourceReader):
    """A declared source: what manifests, drivers and sensors ask of it."""

    delivers: ClassVar[Literal["messages", "columns", "entries"]] = "messages"
    """`messages`: `SourceSession.frame`. The pass itself reads with `batches`: `columns` are typed
    rows, `entries` are messages in parts, a column `body` and what is known beside it."""
    reads_back: ClassVar[bool] = True
    """True: what a sink of the same address writes is read by this source."""
    parts_in_order: ClassVar[bool] = False
    """True: a key may come in several parts of a span, and the last of its records counts: where a
    branch upserts, the parts are read one after the other, in the order in which they are planned.
    False: a key comes in one part of a span, or nothing says which of its records is the last."""

    def reads_in_order(self, span: Span, *, upserts: bool) -> bool:  # noqa: ARG002 - what overrides need
        """Returns whether one task reads all parts of a span, one after the other.

        Asked by the driver for each job that reads parts of a span.

        Args:
            span: what is read, as `SourceSession.plan` made it or as a sink has recorded it.
            upserts: whether a branch upserts.

        Returns:
            By default True where `parts_in_order` is and a branch upserts.
        """
        return self.parts_in_order and upserts

    replays: ClassVar[bool] = True
    """False: what was rejected of it is not what its records were, and cannot be put back."""
    holds_log: ClassVar[bool] = False
    """True: its server keeps log until the flow has read it; assets have a check of how much."""

    @property
    def reserved(self) -> str:
        """Returns what of its server only one flow may read, such as a replication slot.

        Read when manifests are loaded: two flows of which it is the same are refused. A lane
        reads it when a manifest is removed: nothing is left behind where another flow has it.

        Returns:
            A name for people; empty where any number of flows may read the same.
        """
        return ""

    @property
    def null_messages(self) -> NullMessages:
        """Returns what a null message means; tables have none.

        Read inside tasks, once for each slice.

        Returns:
            `reject`: an error; `skip`: nothing; `delete`: the deletion of its key.
        """
        return "reject"

    @property
    def sends_deletes(self) -> str:
        """By what rows are deleted in targets, for notes; empty where that never happens.

        Read when manifests are loaded.

        Returns:
            An option of the source, or its type.
        """
        return "tombstones: delete" if self.null_messages == "delete" else ""

    @property
    def poll_seconds(self) -> float:
        """Returns how long the driver waits before it asks again for what is new.

        Read by the driver whenever it has found nothing new, and by sensors and lanes.

        Returns:
            The least seconds between two questions; 0 for no such bound.
        """
        return 0.0

    @property
    def incremental(self) -> bool:
        """Returns whether what is new can be read without all that was read before.

        Read when manifests are loaded, by sensors and by lanes.

        Returns:
            True: a lane drives the flow together with others. False: each read takes as long as
            all of the source, so that runs of the flow's own job do.
        """
        return True

    @property
    def keeps_running(self) -> bool:
        """Returns whether only a run of the flow can know that its source has something new.

        Read by lanes, twice a second.

        Returns:
            True: a lane that drives the flow does not end because nothing came: the sensor `ingest`
            would start the next one at once. False: a session that is only asked knows.
        """
        return False

    def leaves_out(self, column: str) -> bool:  # noqa: ARG002 - what overrides need
        """Returns whether the manifest leaves a column of the source out of its rows.

        Read when manifests are loaded.

        Args:
            column: its name.
        """
        return False

    @property
    def rereads(self) -> str:
        """The option by which rows may come again, so that sinks must upsert.

        Read when manifests are loaded.

        Returns:
            The option as a manifest says it; empty where rows come once.
        """
        return ""

    def for_branches(self, *, upserts: bool) -> Self:  # noqa: ARG002 - what overrides need
        """The source as its flow needs it, by default itself; `upserts`: whether a branch does.

        Called when a manifest is loaded, once its branches are known.
        """
        return self

    @property
    def new_columns(self) -> NewColumnRule:
        """Returns what becomes of a column that the source delivers and a target lacks.

        Read when manifests are loaded, and by the driver once for each micro-batch.

        Returns:
            `reject`: what steps have made of a row with the column is a rejected record; without
            steps the branch stops. `fail`: the branch stops. `add`: the target gets the column, and
            the micro-batch is read again. `ignore`: the column is left out.
        """
        return "reject"

    @property
    def also_reads(self) -> tuple[Address, ...]:
        """Returns what it reads beside `address`, as a UNION ALL of several tables does.

        Read when manifests are loaded, in the code location and on the command line.
        """
        return ()

    @property
    def loads_each_run(self) -> bool:
        """Returns whether each run begins with loading all tables again (`SourceSession.again`).

        Read by the driver when a branch opens.
        """
        return False

    def check_keys(self, target: pa.Schema, name: str) -> None:
        """Looks whether a target tells all keys apart that the source tells apart.

        Called by the driver when a branch opens whose target is there. By default nothing is asked:
        rows come in their order, and of keys that the target finds equal the last row counts.

        Args:
            target: as `SinkSession.schema` returns it.
            name: of the target, for people.

        Raises:
            PermanentError where rows of several keys would be one row.
        """

    def offsets(self, positions: Positions) -> Sequence[Offset]:
        """The positions of a checkpoint as people read them.

        Called by `dataflow status --offsets`; the source is not asked.

        Args:
            positions: of a checkpoint, also those of parts.

        Returns:
            One for each partition by default; a position that is a JSON object is the value itself.
        """
        return [
            Offset(task, {"partition": name}, _value_of(position))
            for task, (name, position) in enumerate(sorted(positions.items()))
        ]

    def message_format(self) -> MessageFormat | None:
        """Returns what the bodies of messages are written in.

        Called by the driver once for each attempt of a run, with all secrets in place, and by
        previews and replays; what is returned travels to the tasks. Files that it is made of are
        read here.

        Returns:
            None for JSON.

        Raises:
            PermanentError where a file cannot be read, or a schema in it cannot be used.
        """
        return None

    @abstractmethod
    def open(self, flow: str) -> SourceSession:
        """Connects.

        Called by the driver once for each attempt of a run, and by sensors.

        Args:
            flow: `namespace/name`, under which a server may keep something for the flow.

        Raises:
            TransientError when the source cannot be reached; PermanentError when a person must act.
        """

    @classmethod
    def open_together(cls, sources: Mapping[str, Self]) -> dict[str, SourceSession | DataflowError]:
        """Connects to many of equal `shared`, for a look at all of them.

        Called by whoever looks at many flows. The sessions may share a connection: one thread at a
        time uses any of them. By default each is opened by itself.

        Args:
            sources: by the flow, as in `open`.

        Returns:
            By the flow its session, or the error that `open` would have raised: what is wrong with
            one topic or table is no other's error.
        """
        return {flow: outcome(partial(one.open, flow)) for flow, one in sources.items()}

    def left_behind(self) -> str:
        """Returns what stays on the source's server when a flow is reset or removed.

        Called by `dataflow reset`, and by the lane that drives a flow when its manifest is removed;
        with all secrets in place.

        Returns:
            What stays, and what a person runs to remove it; empty where nothing does.
        """
        return ""

    @classmethod
    def types(cls) -> tuple[TypeRow, ...]:
        """How the system's types travel, for docs/types.md; messages have only those of JSON.

        Called when the reference is generated.
        """
        return ()


def _value_of(position: Position) -> Mapping[str, Any]:
    try:
        found = json.loads(position) if isinstance(position, str) else None
    except json.JSONDecodeError:
        found = None
    return found if isinstance(found, dict) else {"offset": position}


class MessageSource(Source):
    """A declared source of messages."""

    tombstones: Annotated[NullMessages, Addition()] = "reject"
    """What a null message means: a rejected record, nothing, or the deletion of its key."""

    @property
    def null_messages(self) -> NullMessages:
        """Returns what the option `tombstones` says.

        Returns:
            As declared.
        """
        return self.tombstones
