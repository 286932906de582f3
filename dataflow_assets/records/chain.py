"""The steps of a flow as one function: a record in, records out; compiled once per task."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.conditions.condition import Condition
from dataflow_assets.records.record import Record
from dataflow_assets.records.step import Apply, Context, Step


@dataclass(frozen=True)
class Transformation:
    """A step and when it applies: a record for which `when` is false passes unchanged."""

    step: Step
    when: Condition | None = None

    def compile(self, context: Context) -> Apply:
        apply = self.step.compile(context)
        if self.when is None:
            return apply
        holds = self.when.compile()
        return lambda record: apply(record) if holds(record) else record

    @property
    def by_metadata(self) -> bool:
        """Returns whether it does nothing but choose a route, by metadata alone."""
        return self.step.by_metadata and (self.when is None or self.when.by_metadata)

    def reads(self) -> frozenset[str]:
        """The metadata keys that the step and its condition look at."""
        return self.step.reads() | (self.when.reads() if self.when else frozenset())


class Chain:
    """Transformations one after another. What one of them cannot transform names it."""

    def __init__(self, transformations: Iterable[Transformation], context: Context) -> None:
        used = list(transformations)
        self.applies = tuple(one.compile(context) for one in used)
        self.types = tuple(one.step.type for one in used)

    def __call__(self, record: Record) -> list[Record]:
        """Returns what happens to one record; none when it is filtered.

        Raises RejectedRecord with the step's index and type. Of a record that becomes several, all
        or none pass: a replay of the rejected one stores none of them twice.
        """
        return self._run(record, 0)

    def _run(self, record: Record, start: int) -> list[Record]:
        for index in range(start, len(self.applies)):
            result = self.apply(index, record)
            if result is None:
                return []
            if result.__class__ is not Record:
                return [out for child in result for out in self._run(child, index + 1)]  # type: ignore[union-attr]
            record = result
        return [record]

    def apply(self, index: int, record: Record) -> Record | list[Record] | None:
        try:
            return self.applies[index](record)
        except RejectedRecord as error:
            raise RejectedRecord("step", error.reason, index, self.types[index]) from None
        except Exception as error:  # a step that raises never loses the record
            reason = f"{type(error).__name__}: the step cannot handle this record"
            raise RejectedRecord("step", reason, index, self.types[index]) from error
