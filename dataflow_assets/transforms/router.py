"""router: chooses the sink of each record."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, field_validator
from typing_extensions import override

from dataflow_assets.records.conditions.condition import Condition
from dataflow_assets.records.record import Record
from dataflow_assets.records.step import Apply, Context, Example, Origins, Step
from dataflow_assets.spec import Spec

_SINK = {"type": "postgresql", "config": {"table": "errors", "connectionString": "..."}}


class RouteSink(Spec):
    """The sink for the records of a route; declared like `spec.sink`."""

    type: str
    """The connector's name."""
    config: dict[str, Any] = Field(min_length=1)
    """The connector's own settings."""


class Route(Spec):
    """One way out."""

    condition: Condition
    """What must hold (see Conditions)."""
    sink: RouteSink
    """Where the records go then: a branch of the flow, with its own checkpoint and asset."""


class Router(Step):
    """Sends a record to the sink of the first route whose condition holds, else to `spec.sink`.

    The step only marks the record (`metadata.routed_condition`): later steps still run on it, and a
    later router may choose again. Routes are identified by their condition's text and sinks by
    their target, so that reordering them changes nothing but the choice.
    """

    type: ClassVar[str] = "router"
    routes: tuple[Route, ...] = Field(min_length=1)
    """Tried in order; the first whose condition holds wins."""

    examples: ClassVar[tuple[Example, ...]] = (
        Example(
            "the condition holds: to the route's sink",
            {
                "routes": [
                    {"condition": "$.lvl == 'err'", "sink": {"type": "a", "config": {"x": 1}}}
                ]
            },
            '{"lvl":"err"}',
            ('{"lvl":"err"}',),
            out_metadata={"routed_condition": "$.lvl == 'err'"},
        ),
        Example(
            "it does not: to the main sink",
            {
                "routes": [
                    {"condition": "$.lvl == 'err'", "sink": {"type": "a", "config": {"x": 1}}}
                ]
            },
            '{"lvl":"info"}',
            ('{"lvl":"info"}',),
            out_metadata={},
        ),
    )

    @field_validator("routes")
    @classmethod
    def _each_once(cls, routes: tuple[Route, ...]) -> tuple[Route, ...]:
        texts = [route.condition.text for route in routes]
        for text in texts:
            if texts.count(text) > 1:
                raise ValueError(f"two routes have the condition {text}: only the first could win")
        return routes

    @override
    def origins(self, column: str) -> Origins:
        return frozenset({column})

    @override
    def compile(self, context: Context) -> Apply:
        routes = [(route.condition.compile(), route.condition.text) for route in self.routes]

        def apply(record: Record) -> Record:
            for holds, text in routes:
                if holds(record):
                    metadata = {**record.metadata, "routed_condition": text}
                    return Record(record.body, metadata, text)
            return record

        return apply

    @property
    @override
    def by_metadata(self) -> bool:
        return all(route.condition.by_metadata for route in self.routes)

    @override
    def reads(self) -> frozenset[str]:
        return frozenset[str]().union(*(route.condition.reads() for route in self.routes))
