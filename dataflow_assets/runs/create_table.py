"""Tables that are not there yet: made from the first records that reach their branch."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from dataflow_assets.contracts import Limit, Note, SourceSession, Span, local_now
from dataflow_assets.errors import blame
from dataflow_assets.flow import Flow
from dataflow_assets.formats.message_format import MessageFormat
from dataflow_assets.micro_batch.branches import BranchSteps
from dataflow_assets.micro_batch.sample import FieldSample, Sampler, sample
from dataflow_assets.runs.branch_turns import OpenBranch
from dataflow_assets.sdk.raw_mode import shape_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

SAMPLE = Limit(records=10_000)
_SHORT, _MOST_DIGITS = 38, 76  # of the two decimals that Arrow has


class Creating:
    """Makes the missing tables of one attempt."""

    def __init__(
        self, flow: Flow, source: SourceSession, form: MessageFormat | None = None
    ) -> None:
        """`form`: what the bodies of messages are written in; None: JSON."""
        self._flow, self._source, self._format = flow, source, form

    def has_table(self, opened: OpenBranch, span: Span, spark: Callable[[], SparkSession]) -> bool:
        """True when the branch can take part in the span; `spark` gives a live session.

        False when there is no table and nothing in the span reaches it: then its start moves over
        the span, so that it need not be read again.
        """
        if opened.session.table.schema() is not None:
            return True
        messages = self._flow.source.delivers == "messages"
        first = self._source.plan(span.after, SAMPLE, span.upto) if messages else span
        with blame(opened.branch.id):
            sample = self._sample(opened, first, spark)
            if not sample.records and first.upto != span.upto:
                sample = self._sample(opened, span, spark)
            if sample.records or not self._flow.by_record:
                opened.session.table.create(narrow(sample.schema))
                return True
            log.warning(
                "flow %s: all records so far were filtered, so %s is not created yet; "
                "`dataflow preview` shows what each step does with them",
                *(self._flow.id, opened.branch.address),
            )
            upto = self._source.fold({**opened.positions, **span.upto})
            opened.session.restart(upto, self._source.identity)
        return False

    def _sample(
        self, opened: OpenBranch, span: Span, spark: Callable[[], SparkSession]
    ) -> FieldSample:
        branch = opened.branch
        steps = BranchSteps.of(self._flow, local_now(), [shape_of(branch.sink, None)])
        source = self._flow.source
        work = Sampler(source, span, steps, branch.sink, branch.routes, format=self._format)
        return sample(spark, self._source, work)


def make_ahead(opened: OpenBranch) -> None:
    """Makes a missing table whose columns are known without a record.

    Called by the loop on the driver for each branch that has opened, once its start is stored.
    """
    if not opened.branch.sink.traits.needs_sample and opened.session.table.schema() is None:
        with blame(opened.branch.id):
            opened.session.table.create(pa.schema([]))


def narrow(schema: pa.Schema) -> pa.Schema:
    """With decimals where a table declares how many digits its numbers have."""
    return pa.schema(map(_as_decimal, schema), schema.metadata)


def _as_decimal(field: pa.Field) -> pa.Field:
    digits = Note.DECIMAL.of(field)
    if digits is None:
        return field
    precision, scale = map(int, digits.split(","))
    if precision > _MOST_DIGITS or scale > precision:
        return field
    kept = {key: value for key, value in field.metadata.items() if key != Note.KIND}
    make = pa.decimal128 if precision <= _SHORT else pa.decimal256
    return field.with_type(make(precision, scale)).with_metadata(kept)
