"""dedupe: of the records of one micro-batch that share a key, the first."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from decimal import Decimal
from typing import Any, ClassVar

from pydantic import Field, field_validator
from typing_extensions import override

from dataflow_assets.records.paths.path import Path
from dataflow_assets.records.record import MISSING, Record, at, encode_sorted
from dataflow_assets.records.step import Apply, Context, Example, Origins, Step

METADATA = "metadata."


class Dedupe(Step):
    """Drops a record whose key was already seen in the same micro-batch and source partition.

    It thins out repeats that come close together; it does not make a table unique. What repeats in
    another micro-batch or another partition passes: an upsert sink is what makes those one row.
    Nothing is remembered beyond the micro-batch; in a replay each entry is one of its own. After a
    crash the next one begins where the last commit ended, with nothing seen: a repeat of what was
    committed just before passes then, as it does at every border between micro-batches. At worst a
    repeat passes.

    A record without the key passes. A record counts as seen even if a later step or the sink
    rejects it, and its repeats are dropped: put `validate` and `cast` before it. The keys seen are
    held in memory, as many as one micro-batch has in one partition.
    """

    type: ClassVar[str] = "dedupe"
    addition: ClassVar[bool] = True
    key: tuple[str, ...] = Field(min_length=1)
    """What is the same in repeats: paths into the body, or `metadata.` and a key of the metadata
    (`metadata.key`: the key of the message)."""

    examples: ClassVar[tuple[Example, ...]] = (
        Example("the first one passes", {"key": ["id"]}, '{"id":1}', ('{"id":1}',)),
        Example(
            "by the key of the message",
            {"key": ["metadata.key"]},
            '{"n":1}',
            ('{"n":1}',),
            metadata={"key": "a"},
            out_metadata={"key": "a"},
        ),
        Example("no key: passes", {"key": ["id", "at"]}, '{"id":1}', ('{"id":1}',)),
        Example("null is not a key", {"key": ["id"]}, '{"id":null}', ('{"id":null}',)),
        Example("not JSON: passes", {"key": ["id"]}, "hello", ("hello",)),
    )

    @field_validator("key")
    @classmethod
    def _readable(cls, key: tuple[str, ...]) -> tuple[str, ...]:
        for part in key:
            if part == METADATA:
                raise ValueError("metadata. needs a name: metadata.key is the message's key")
            Path.parse(part)
        return key

    @override
    def origins(self, column: str) -> Origins:
        return frozenset({column})

    @override
    def compile(self, context: Context) -> Apply:
        read = _together([_reader(part) for part in self.key])
        seen: set[Hashable] = set()

        def apply(record: Record) -> Record | None:
            key = read(record)
            if key is None:
                return record
            if key in seen:
                return None
            seen.add(key)
            return record

        return apply

    @override
    def reads(self) -> frozenset[str]:
        return frozenset(p.removeprefix(METADATA) for p in self.key if p.startswith(METADATA))


Reader = Callable[[Record], Hashable]


def _together(readers: list[Reader]) -> Reader:
    """One key of several parts; None as soon as one of them is missing."""
    if len(readers) == 1:
        return readers[0]

    def read(record: Record) -> Hashable:
        parts = tuple([one(record) for one in readers])
        return None if None in parts else parts

    return read


def _reader(part: str) -> Reader:
    if part.startswith(METADATA):
        name = part.removeprefix(METADATA)

        def read(record: Record) -> Hashable:
            value = record.metadata.get(name)
            if value == "":  # a message without a key
                return None
            return at(part, _identity, value)

        return read
    find = Path.parse(part).getter()
    return lambda record: at(part, _identity, find(record.body))


def _identity(value: Any) -> Hashable:
    """Equal for what is one JSON value: 1 and 1.0, objects in any order; not for 1 and "1"."""
    if isinstance(value, str):
        return value
    if value is None or value is MISSING:
        return None
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return value
    return encode_sorted(value)
