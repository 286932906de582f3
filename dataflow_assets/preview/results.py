"""What became of a message, as one JSON object on one line."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from msgspec import Raw

from dataflow_assets.preview.messages import Message, given, plain
from dataflow_assets.records.record import encode
from dataflow_assets.testing import Out, Result


def as_json(message: Message, result: Result) -> str:
    """`in` is the message as it was given; `out` is empty where it is filtered or rejected."""
    rejected = asdict(result.rejected) if result.rejected else None
    found = {"in": Raw(message.line), "out": [_out(one) for one in result.out]}
    return encode({**found, "rejected": rejected}).decode()


def _out(one: Out) -> dict[str, Any]:
    return {**given(one.body), "metadata": plain(one.metadata), "route": one.route}
