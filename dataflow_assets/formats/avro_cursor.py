"""Many Avro values side by side: where each is being read, and what stands there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Rows = Ints | None
"""The values that a field is read of; None: all of them."""

_PADDING = 16  # more than any number is wide: a cursor at the end may look that far
_LONGEST = 10  # bytes of a number
_SHORT = 48  # bytes of a text, on average, up to which numpy copies faster than slices do


class Misfit(Exception):
    """One of the values is none of the schema, or none that is read here."""


@dataclass
class Block:
    """Values, one behind the other or not: where each begins and ends."""

    data: Bytes
    starts: Ints
    ends: Ints

    @classmethod
    def of(cls, bodies: pa.Array) -> Block:
        """All bodies of a binary array; null ones are empty."""
        _, offsets, data = bodies.buffers()
        bounds = np.frombuffer(offsets, np.int32)[bodies.offset : bodies.offset + len(bodies) + 1]
        octets = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
        places = bounds.astype(np.int64)
        return cls(octets, places[:-1], places[1:])

    def part(self, first: int, count: int) -> Block:
        rows = slice(first, first + count)
        return Block(self.data, self.starts[rows], self.ends[rows])

    def values(self) -> list[bytes]:
        whole = memoryview(self.data)  # type: ignore[arg-type]
        pairs = zip(self.starts.tolist(), self.ends.tolist(), strict=True)
        return [bytes(whole[start:end]) for start, end in pairs]

    def __len__(self) -> int:
        return len(self.starts)


class AvroCursor:
    """Holds the place up to which each value is read."""

    def __init__(self, block: Block) -> None:
        first, last = int(block.starts.min()), int(block.ends.max())
        padding = np.zeros(_PADDING, np.uint8)
        self.data = np.concatenate([block.data[first:last], padding])
        self.at, self.ends = block.starts - first, block.ends - first

    def take(self, rows: Rows) -> Ints:
        return self.at if rows is None else self.at[rows]

    def move(self, rows: Rows, to: Ints) -> None:
        """Moves to the end of what was read. Raises Misfit if a value has ended before."""
        if np.any(to > (self.ends if rows is None else self.ends[rows])):
            raise Misfit
        if rows is None:
            self.at = to
        else:
            self.at[rows] = to

    def longs(self, rows: Rows) -> Ints:
        at = self.take(rows)
        first = self.data[at]
        raw = (first & 0x7F).astype(np.uint64)
        width = np.ones(len(at), np.int64)
        more = np.flatnonzero(first & 0x80)
        for step in range(1, _LONGEST):
            if not len(more):
                break
            byte = self.data[at[more] + step]
            if step == _LONGEST - 1 and np.any(byte > 1):
                raise Misfit
            raw[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * step)
            width[more] += 1
            more = more[byte >= 0x80]
        self.move(rows, at + width)
        return (raw >> np.uint64(1)).astype(np.int64) ^ -(raw & np.uint64(1)).astype(np.int64)

    def wide(self, rows: Rows, size: int) -> Bytes:
        """So many bytes of each value, a row for each."""
        at = self.take(rows)
        self.move(rows, at + size)
        octets: Bytes = self.data[at[:, None] + np.arange(size)]
        return octets

    def slices(self, rows: Rows) -> pa.Array:
        lengths = self.longs(rows)
        at = self.take(rows)
        if np.any(lengths < 0) or np.any(lengths > len(self.data)):
            raise Misfit
        self.move(rows, at + lengths)
        bounds = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=bounds[1:])
        total = int(bounds[-1])
        if total >= 2**31:
            raise Misfit
        if total > _SHORT * len(lengths):
            whole = memoryview(self.data)  # type: ignore[arg-type]
            pairs = zip(at.tolist(), (at + lengths).tolist(), strict=True)
            copied = b"".join([whole[start:end] for start, end in pairs])
        else:
            copied = self.data[np.repeat(at - bounds[:-1], lengths) + np.arange(total)].tobytes()
        offsets = pa.py_buffer(bounds.astype(np.int32))
        return pa.Array.from_buffers(
            pa.binary(), len(lengths), [None, offsets, pa.py_buffer(copied)]
        )
