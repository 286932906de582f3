"""The messages of one slice as chunks, one for each branch of the pass.

Without steps the bodies are decoded straight into the sink's columns. With steps each message
becomes a record, runs through the chain, and each branch decodes the JSON of its own records by the
same rules. What fails before the branches part is rejected once, by the main one. A sink that takes
messages gets bodies, keys and headers as they were sent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pyarrow as pa

from dataflow_assets.contracts import EVERYTHING, SOURCE, Chunk, Rejection, Sent, Sink
from dataflow_assets.errors import RejectedRecord
from dataflow_assets.formats.message_format import MessageFormat
from dataflow_assets.micro_batch import row_changes
from dataflow_assets.micro_batch.branch_rows import BranchRows
from dataflow_assets.micro_batch.branches import BranchSteps, PassBranch, Read
from dataflow_assets.micro_batch.decode import Decoding
from dataflow_assets.micro_batch.formatted import in_json, without_refused
from dataflow_assets.micro_batch.forward import Forwarded, keys_of
from dataflow_assets.micro_batch.message_metadata import MetadataRows, deletions
from dataflow_assets.micro_batch.originals import OriginalMessages, rejection, with_offset
from dataflow_assets.micro_batch.places import Places
from dataflow_assets.records.chain import Chain
from dataflow_assets.records.record import Record, parse, text
from dataflow_assets.records.wrapped import unwrap
from dataflow_assets.sdk.raw_mode import shape_of


def reader(
    steps: BranchSteps | None,
    branches: Sequence[PassBranch],
    rows: MetadataRows,
    form: MessageFormat | None,
) -> Read:
    """Returns how the messages of one slice become rows; made once per slice, inside the task.

    `rows` reads the metadata of the slice, `form` the bodies (None: they are JSON).
    """
    if steps is None:
        return Decoding(branches, rows, form)
    return Transforming(steps, branches, rows, form)


class Transforming:
    """Bodies as records through the chain; what comes out, as JSON again, for each branch."""

    def __init__(
        self,
        steps: BranchSteps,
        branches: Sequence[PassBranch],
        rows: MetadataRows,
        form: MessageFormat | None,
    ) -> None:
        tombstones = rows.source.traits.null_messages
        self._steps, self._form = steps, form
        self._keys = bool(rows.reads & {"key", EVERYTHING})
        self._chain = self._compile()
        self._branches = [_branch(branch, tombstones, form) for branch in branches]
        self._rows = rows
        self._places = Places(rows.piece)

    def _compile(self) -> Chain:
        return Chain(self._steps.transformations, self._steps.context)

    def __call__(self, batch: pa.RecordBatch) -> list[Chunk]:
        """Each branch's chunk. Records of a route that is not among the branches are left out."""
        offsets = self._rows.offsets(batch)
        gone = deletions(batch)
        branches = [branch(gone) for branch in self._branches]
        ways = {route: branch for branch in branches for route in branch.branch.routes}
        again = self._rows.again(batch)
        _, refused_rows = without_refused(batch)
        rejected: list[Rejection] = []
        several: dict[int, int] = {}
        as_json, unreadable = in_json(batch, self._form, keys=self._keys)
        for at, (raw, metadata) in enumerate(self._rows.records(as_json)):
            pair = again[at] if again else None
            one = Again(*pair) if pair else None
            # What steps remember is of one micro-batch; entries are of many.
            chain = self._chain if again is None else self._compile()
            stage = SOURCE if at in refused_rows else "decode"
            try:
                made_of = chain(Record(_parse(raw, stage, unreadable.get(at)), metadata))
                chosen = one.choose(made_of, ways) if one else enumerate(made_of)
            except RejectedRecord as error:
                body = batch.column("body")[at].as_py()
                place = self._places.of(batch, at, int(offsets[at]), body)
                with_place = with_offset(metadata, int(offsets[at]))
                change = row_changes.dump(batch, at)
                message = Sent(body, with_place, place=place, change=change)
                refused = rejection(int(offsets[at]), error, message)
                if one is None:
                    rejected.append(refused)
                else:
                    # Still the same record of its message, for the branch that rejected it.
                    same = replace(refused, stage="encode", n=one.n, rows=one.rows or 0)
                    branches[0].rejected.append(same)
                continue
            if len(made_of) != 1:
                several[int(offsets[at])] = len(made_of)
            for n, record in chosen:
                if (branch := ways.get(record.route)) is not None:
                    branch.take(at, n, record)
        if None in ways:
            ways[None].rejected += rejected
        numbers = pa.array(offsets, pa.int64())
        sent = OriginalMessages(numbers, batch, self._rows, several, as_json, places=self._places)
        return [branch.chunk(offsets, sent) for branch in branches]


def _parse(raw: bytes | None, stage: str, unreadable: str | None) -> Any:
    if unreadable is not None:
        raise RejectedRecord(stage, unreadable)
    return parse(raw)


def _branch(
    branch: PassBranch, tombstones: str, form: MessageFormat | None
) -> Callable[[frozenset[int]], BranchRows | Forwarded]:
    """Makes what the branch gets of one batch; what decodes is made once per slice."""
    if branch.sink.takes == "messages":
        return lambda _: Forwarded(branch, tombstones, keys_of(form, branch.sink))
    shape = branch.shape()
    decoders = cache(lambda whole: branch.decoder("delete", whole=whole))
    return lambda gone: BranchRows(branch, shape, decoders, tombstones, gone)


def sample_bodies(
    steps: BranchSteps,
    rows: MetadataRows,
    batch: pa.RecordBatch,
    sink: Sink,
    routes: tuple[str | None, ...],
) -> Iterator[Any]:
    """The bodies that one branch gets, as JSON or as objects; None for what it must reject."""
    chain = Chain(steps.transformations, steps.context)
    shape, unwraps = shape_of(sink, None), sink.traits.unwraps
    for raw, metadata in rows.records(batch):
        try:
            result = chain(Record(parse(raw), metadata))
        except RejectedRecord:
            yield from (None,) if None in routes else ()
            continue
        for record in result:
            if record.route in routes:
                body = unwrap(record.body) if unwraps else record.body
                yield text(body) if shape is None else shape(record)


@dataclass(frozen=True)
class Again:
    """One record of those that a message had become: the only one of them that was rejected."""

    n: int
    rows: int | None
    """How many there were; None: an earlier version did not count them."""

    def choose(
        self, found: Sequence[Record], routes: Collection[str | None]
    ) -> list[tuple[int, Record]]:
        """The records to put back of those that the message becomes now, with their indexes.

        Where all of them are filtered out there are none. A message that was one record had
        nothing stored, so it goes back whole. Raises RejectedRecord where nobody can tell which of
        the records is the one that was rejected: another one of them stands in the table already.
        """
        if not found:
            return []
        if (self.rows != 1 and len(found) != (self.rows or len(found))) or self.n >= len(found):
            now = len(found)
            before = f"record {self.n + 1} of {self.rows or 'several'}"
            raise RejectedRecord(
                "encode",
                f"it was {before} that its message became when it was rejected, and the steps make "
                f"{now} of it now: which of them it is cannot be known. Let the steps make as many "
                "again, or store it by hand and delete the entry",
            )
        chosen = list(enumerate(found)) if self.rows == 1 else [(self.n, found[self.n])]
        if not all(record.route in routes for _, record in chosen):
            raise RejectedRecord(
                "encode", "by its steps it goes into another branch now than when it was rejected"
            )
        return chosen
