"""Messages written down, one JSON object a line: read from a file, printed beside results.

| line | the message |
|---|---|
| `{"body": ..., "metadata": {...}}` | JSON |
| `{"text": "...", "metadata": {...}}` | this text, JSON or not; `null`: a null message |
| `{"base64": "...", "metadata": {...}}` | these bytes |
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import msgspec

from dataflow_assets.errors import PermanentError, RejectedRecord
from dataflow_assets.records import record
from dataflow_assets.records.decoding import decode_json
from dataflow_assets.records.record import NotJson
from dataflow_assets.testing import Result

_WANTED = (
    'must be {"body": ..., "metadata": {...}}, or {"text": "...", "metadata": {...}} for a message '
    "that is not JSON"
)
_KEYS = frozenset({"body", "text", "base64", "metadata"})


@dataclass(frozen=True)
class Message:
    """One message. `line`: as it is printed, the object of the file as it stands there."""

    raw: bytes | None
    metadata: Mapping[str, Any]
    line: bytes
    unreadable: str | None = None
    """Why the body cannot be decoded; `raw` is JSON else."""


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    body: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    text: str | msgspec.UnsetType | None = msgspec.UNSET
    base64: str | msgspec.UnsetType = msgspec.UNSET
    metadata: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def read(lines: Iterable[bytes], name: str) -> Iterator[Message]:
    """The messages of a file. Raises PermanentError with the number of a line that is none."""
    for number, line in enumerate(lines, 1):
        text = line.removeprefix(b"\xef\xbb\xbf").strip()
        if not text:
            continue
        try:
            yield _message(text)
        except (ValueError, RecursionError) as error:
            raise PermanentError(f"{name}:{number}: {_WANTED}; {error}") from None


def _message(line: bytes) -> Message:
    line.decode()  # what is printed again has to be text
    try:
        fields = decode_json(line, _Line)
    except (msgspec.MsgspecError, RecursionError) as error:
        return _without_parts(line, error)
    if sum(one is not msgspec.UNSET for one in (fields.body, fields.text, fields.base64)) != 1:
        raise ValueError("one of body, text and base64 has to be there")
    metadata = {} if fields.metadata is msgspec.UNSET else _metadata(bytes(fields.metadata))
    return Message(_raw(fields), metadata, line)


def _without_parts(line: bytes, error: Exception) -> Message:
    """JSON of which not even the parts can be told exactly: the record is rejected for that."""
    try:
        content = record.parse(line)
    except RejectedRecord:
        return Message(line, {}, line)
    bare = isinstance(content, dict) and not content.keys() & _KEYS
    advice = 'this line is a bare record: write it as {"body": RECORD}'
    raise ValueError(advice if bare else str(error)) from None


def _raw(found: _Line) -> bytes | None:
    if isinstance(found.body, msgspec.Raw):
        return bytes(found.body)
    if isinstance(found.base64, str):
        return b64decode(found.base64, validate=True)
    return found.text.encode() if isinstance(found.text, str) else None


def _metadata(text: bytes) -> dict[str, Any]:
    try:
        metadata = record.parse(text)
    except RejectedRecord as error:
        raise ValueError(f"metadata: {error.reason}") from None
    if not isinstance(metadata, dict):
        raise ValueError("metadata has to be an object")  # noqa: TRY004 - a mistake in the file
    return metadata


def write(raw: bytes | None, metadata: Mapping[str, Any]) -> bytes:
    """A message as a line that `read` understands."""
    try:
        body = body_key(record.parse(raw))
    except RejectedRecord:
        body = exact(raw)
    return record.encode({**body, "metadata": plain(metadata)})


def unreadable(raw: bytes | None, metadata: Mapping[str, Any], reason: str) -> Message:
    """A message whose body cannot be decoded."""
    line = record.encode({**exact(raw), "metadata": plain(metadata)})
    return Message(raw, metadata, line, reason)


def body_key(body: Any) -> dict[str, Any]:
    """A body under the key that says what it is."""
    return exact(body.raw) if isinstance(body, NotJson) else {"body": body}


def exact(raw: bytes | None) -> dict[str, Any]:
    try:
        return {"text": None if raw is None else raw.decode()}
    except UnicodeDecodeError:
        return {"base64": b64encode(raw or b"").decode()}


def plain(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata as JSON holds it: times as RFC 3339 in UTC."""
    return {
        key: record.text_form(value) if isinstance(value, datetime) else value
        for key, value in metadata.items()
    }


def as_json(message: Message, result: Result) -> str:
    """`in` is the message as it was given; `out` is empty where it is filtered or rejected."""
    rejected = asdict(result.rejected) if result.rejected else None
    outputs = [
        {**body_key(one.body), "metadata": plain(one.metadata), "route": one.route}
        for one in result.out
    ]
    answer = {"in": msgspec.Raw(message.line), "out": outputs, "rejected": rejected}
    return record.encode(answer).decode()
