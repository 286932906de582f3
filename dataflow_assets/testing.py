"""A manifest's steps as a function, for a user's own tests: no Spark, no server, no Secret.

    from dataflow_assets.testing import steps_of

    run = steps_of("flows/orders.yaml")

    def test_cents() -> None:
        assert run({"id": "7", "amount": "12.50"}).bodies == [{"id": 7, "amount": Decimal("12.50")}]

It is the code that runs inside a flow, and a call takes microseconds. Fractions are `Decimal`, as
steps see them: compare with `Decimal("0.1")`, which the float 0.1 does not equal. `docs/preview.md`
tells more.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dataflow_assets.contracts import local_now
from dataflow_assets.errors import ManifestError, PermanentError, RejectedRecord
from dataflow_assets.flow import Flow
from dataflow_assets.manifests.load import Loaded, load
from dataflow_assets.records.chain import Chain
from dataflow_assets.records.record import NotJson, Record, parse, text
from dataflow_assets.records.step import Context

__all__ = ["NotJson", "Out", "Rejected", "Result", "Run", "steps_of"]


@dataclass(frozen=True, slots=True)
class Out:
    """A record behind the last step.

    `body` may be a `NotJson`. `route`: the condition of the route that it takes; None: to
    `spec.sink`. `text`: the body as the bytes that the sink gets, with every digit.
    """

    body: Any
    metadata: Mapping[str, Any] = field(default_factory=dict)
    route: str | None = None
    text: bytes | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Rejected:
    """Why a record is set aside, and by which of the `transformations`.

    Without a step, `type` is `decode` (JSON that cannot be kept exactly, or invalid UTF-8) or
    `encode` (a body that JSON cannot hold).
    """

    step: int | None
    type: str
    reason: str


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome for one record; nothing at all where it is filtered."""

    out: tuple[Out, ...] = ()
    rejected: Rejected | None = None

    @property
    def bodies(self) -> list[Any]:
        return [one.body for one in self.out]

    @property
    def is_filtered(self) -> bool:
        """True where a step dropped the record."""
        return not self.out and self.rejected is None


class Run:
    """The steps of one flow. Its calls are the records of one micro-batch, in their order."""

    def __init__(self, flow: Flow, now: datetime) -> None:
        self._chain = Chain(flow.transformations, Context(now))

    def __call__(self, body: Any, metadata: Mapping[str, Any] | None = None) -> Result:
        """Returns what happens to a record.

        Text and bytes are the message as it is sent, and None is a null message. Every other
        value is sent as JSON; JSON's own null is `"null"`, and its text is `'"text"'`.
        """
        return outcome(self._chain, _message(body), metadata or {})


def steps_of(
    path: str | os.PathLike[str], flow: str | None = None, now: datetime | None = None
) -> Run:
    """The steps of the flow in a manifest, or of the one called `flow` (or `namespace/flow`).

    `now` is the time that steps write, the present by default. Raises ManifestError with every
    finding, and PermanentError where it is not clear which flow is meant.
    """
    if now is not None and now.tzinfo is None:
        raise ValueError("now: must be a time with a zone, e.g. datetime(2026, 7, 20, tzinfo=UTC)")
    return Run(choose(load(path), flow), now or local_now())


def choose(loaded: Loaded, name: str | None) -> Flow:
    """The flow of this name, or the only one there is."""
    if name is not None and (flow := loaded.flow(name)):
        return flow
    if loaded.findings:
        raise ManifestError(list(loaded.findings))
    if name is None and len(loaded.flows) == 1:
        return loaded.flows[0]
    ids = ", ".join(flow.id for flow in loaded.flows) or "none"
    what = "which flow is meant" if name is None else f"which flow {name} is"
    raise PermanentError(f"it is not clear {what}; name one of: {ids}")


def outcome(chain: Chain, raw: bytes | None, metadata: Mapping[str, Any]) -> Result:
    try:
        result = chain(Record(parse(raw), metadata))
    except RejectedRecord as error:
        return Result(rejected=Rejected(error.step, error.step_type or error.stage, error.reason))
    try:
        return Result(
            tuple([Out(one.body, one.metadata, one.route, text(one.body)) for one in result])
        )
    except RejectedRecord as error:
        return Result(rejected=Rejected(None, "encode", error.reason))


def _message(body: Any) -> bytes | None:
    if isinstance(body, str):
        return body.encode()
    return body if body is None or isinstance(body, bytes) else text(body)
