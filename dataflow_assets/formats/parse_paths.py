"""JSON messages to columns of text, each by its parse path: what JustOne's connector writes.

A column holds the text of the element at the end of its path: a string without its quotes and
escapes, a number with its digits as sent, `true` or `false`, an object or array as its JSON text as
sent. A JSON null, and a path that leads nowhere, are null. What the text means in the column's type
is for the database to say.

A batch is decoded into structs made from the paths, which look at nothing else. What does not fit
these (an array on the way, a scalar where an object was expected) is walked value by value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from dataflow_assets.contracts import Group, Grouped, MessageFormat, Texts
from dataflow_assets.records.paths.parse_path import Item, ParsePath

_NULL = msgspec.Raw(b"null")
_QUOTE, _OF_NULL = ord('"'), ord("n")
_UNFIT = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_STRING = msgspec.json.Decoder(str)
Cells = Sequence[msgspec.Raw]
Refused = dict[int, str]
"""By row of a batch: why its message cannot be decoded."""


@dataclass(frozen=True)
class ParsePathsFormat(MessageFormat):
    """Messages whose columns are found by parse paths."""

    names: tuple[str, ...]
    """Of the columns, each once."""
    paths: tuple[str, ...]
    """Of the columns, in the same order; each can be parsed."""

    @override
    def columns(self, bodies: pa.Array, as_json: frozenset[str] = frozenset()) -> Grouped:
        at = np.flatnonzero(bodies.is_valid().to_numpy(zero_copy_only=False))
        rows, refused = self._rows(bodies.drop_null().to_pylist())
        if refused:
            kept = np.ones(len(at), np.bool_)
            kept[list(refused)] = False
            rows, sound = rows.filter(pa.array(kept)), at[kept]
        else:
            sound = at
        reasons = {int(at[row]): why for row, why in sorted(refused.items())}
        return Grouped([Group(sound, rows)] if rows.num_rows else [], reasons)

    @override
    def texts(self, bodies: pa.Array) -> Texts:
        """The columns as JSON objects of texts, as `dataflow preview` shows them."""
        found = self.columns(bodies)
        texts: list[bytes | None] = [None] * len(bodies)
        for group in found.groups:
            rows = group.rows.to_pylist()
            for row, value in zip(group.at.tolist(), rows, strict=True):
                texts[row] = msgspec.json.encode(value)
        return Texts(pa.array(texts, pa.binary()), found.refused)

    @cached_property
    def _ways(self) -> list[tuple[Item, ...]]:
        return [ParsePath.parse(path).items for path in self.paths]

    @cached_property
    def _reader(self) -> _Reader:
        return _Reader(self._ways)

    def __getstate__(self) -> dict[str, Any]:
        """Decoders are made where they are used."""
        return {"names": self.names, "paths": self.paths}

    def _rows(self, bodies: Sequence[bytes]) -> tuple[pa.RecordBatch, Refused]:
        columns, refused = self._reader.columns(bodies)
        arrays = []
        for cells in columns:
            array, unfit = _texts(cells)
            arrays.append(array)
            refused = unfit | refused
        return pa.RecordBatch.from_arrays(arrays, names=list(self.names)), refused


class _Reader:
    """Finds the elements of all paths in a batch of messages."""

    def __init__(self, ways: Sequence[tuple[Item, ...]]) -> None:
        self._ways = ways
        tree = _tree(ways)
        self._decode = msgspec.json.Decoder(_struct(tree)).decode
        self._nothing = _struct(tree)()
        self._finds = [_finder(*_place(tree, way)) for way in ways]

    def columns(self, bodies: Sequence[bytes]) -> tuple[list[Cells], Refused]:
        """Of each path the elements, null where there is none; and what is no JSON."""
        rows, odd, refused = self._decoded(bodies)
        found = [
            self._found(rows, bodies, find, way)
            for find, way in zip(self._finds, self._ways, strict=True)
        ]
        for row in odd:  # no object, or one whose members are others than expected
            for cells, way in zip(found, self._ways, strict=True):
                cells[row] = _walked(msgspec.Raw(bodies[row]), way)
        return [*found], refused

    def _decoded(self, bodies: Sequence[bytes]) -> tuple[list[Any], list[int], Refused]:
        try:
            return list(map(self._decode, bodies)), [], {}
        except _UNFIT:
            rows: list[Any] = []
            odd: list[int] = []
            refused: Refused = {}
        for row, body in enumerate(bodies):
            try:
                rows.append(self._decode(body))
            except _UNFIT:
                rows.append(self._nothing)
                if wrong := _not_json(body):
                    refused[row] = wrong
                else:
                    odd.append(row)
        return rows, odd, refused

    @staticmethod
    def _found(
        rows: Sequence[Any],
        bodies: Sequence[bytes],
        find: Callable[[Sequence[Any]], list[msgspec.Raw]],
        way: tuple[Item, ...],
    ) -> list[msgspec.Raw]:
        try:
            return find(rows)
        except AttributeError:  # a null on the way
            return [_walked(msgspec.Raw(body), way) for body in bodies]


def _tree(ways: Sequence[tuple[Item, ...]]) -> dict[Item, Any]:
    """Nested by key as far as the ways lead through objects; a leaf is None.

    A key with an index behind it, or that is the end of one way and the middle of another, is a
    leaf: the rest is walked.
    """
    tree: dict[Item, Any] = {}
    for head in dict.fromkeys(way[0] for way in ways):
        rest = [way[1:] for way in ways if way[0] == head]
        nested = all(tail and isinstance(tail[0], str) for tail in rest)
        tree[head] = _tree(rest) if nested else None
    return tree


def _struct(tree: Mapping[Item, Any]) -> type[msgspec.Struct]:
    """One member for each key; indexes at the top have none, such messages are walked."""
    members: list[Any] = []
    names: dict[str, str] = {}
    for number, (key, inner) in enumerate(tree.items()):
        if isinstance(key, str):
            names[f"c{number}"] = key
            kind = msgspec.Raw if inner is None else _struct(inner)
            default = _NULL if inner is None else kind()
            members.append((f"c{number}", kind if inner is None else kind | None, default))
    return msgspec.defstruct("Message", members, rename=names, frozen=True, gc=False)


def _place(tree: Mapping[Item, Any], way: tuple[Item, ...]) -> tuple[str, tuple[Item, ...]]:
    """The member of a struct that a way leads to, and what is to be walked behind it."""
    members = []
    for at, item in enumerate(way):
        if not isinstance(item, str):
            return "", way
        members.append(f"c{list(tree).index(item)}")
        if tree[item] is None:
            return ".".join(members), way[at + 1 :]
        tree = tree[item]
    raise AssertionError("a way ends at a leaf")


def _finder(members: str, rest: tuple[Item, ...]) -> Callable[[Sequence[Any]], list[msgspec.Raw]]:
    """Reads one element of every message; written-out access takes half of what attrgetter does."""
    if not members:  # an array at the top is no struct
        return lambda rows: [_NULL] * len(rows)
    find: Callable[[Sequence[Any]], list[msgspec.Raw]]
    find = eval(f"lambda rows: [row.{members} for row in rows]")  # noqa: S307 - c0.c1 and so on
    return find if not rest else lambda rows: [_walked(raw, rest) for raw in find(rows)]


def _walked(raw: msgspec.Raw, way: tuple[Item, ...]) -> msgspec.Raw:
    """The element at the end of a way through sound JSON."""
    for item in way:
        try:
            raw = _OBJECT.decode(raw)[item] if isinstance(item, str) else _ARRAY.decode(raw)[item]
        except (*_UNFIT, LookupError):
            return _NULL
    return raw


def _not_json(body: bytes) -> str:
    """Why a message is no JSON; empty where it is."""
    if not body.strip():
        return "empty value: expected JSON"
    try:
        body.decode()
        msgspec.json.decode(body)
    except UnicodeDecodeError as error:
        return f"invalid UTF-8 at byte {error.start}"
    except RecursionError:
        return "nested too deeply"
    except msgspec.MsgspecError as error:
        return f"is not JSON: {str(error).splitlines()[0][:200]}"
    return ""


def _texts(cells: Cells) -> tuple[pa.Array, Refused]:
    """Elements as the text that a database gets."""
    raws, first = _joined(cells)
    refused: Refused = {}
    try:
        texts = raws.cast(pa.string())
    except pa.ArrowInvalid:
        texts, refused = _readable(raws)
    quoted = first == _QUOTE
    if not quoted.any():
        return texts, refused
    escaped = pc.fill_null(pc.match_substring(texts, "\\"), False).to_numpy(zero_copy_only=False)
    plain = pc.ascii_trim(texts, '"')  # of a number, an object or an array there is none to trim
    return _unescaped(plain, cells, np.flatnonzero(escaped & quoted).tolist(), refused)


def _joined(cells: Cells) -> tuple[pa.Array, np.ndarray[Any, np.dtype[np.uint8]]]:
    """The texts as sent, null where they are JSON's null; and the first byte of each."""
    if not cells:
        return pa.array([], pa.binary()), np.zeros(0, np.uint8)
    data = b"".join(cells)
    bounds = np.zeros(len(cells) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, cells), np.int32, len(cells)), out=bounds[1:])
    first = np.frombuffer(data, np.uint8)[bounds[:-1]]
    valid = first != _OF_NULL
    bitmap = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [bitmap, pa.py_buffer(bounds), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(cells), buffers), first


def _readable(raws: pa.Array) -> tuple[pa.Array, Refused]:
    """As `cast`, with the texts that are no UTF-8 as null, and refused."""
    refused: Refused = {}
    found: list[str | None] = []
    for row, raw in enumerate(raws.to_pylist()):
        try:
            found.append(None if raw is None else raw.decode())
        except UnicodeDecodeError as error:
            found.append(None)
            refused[row] = f"invalid UTF-8 at byte {error.start} of a value"
    return pa.array(found, pa.string()), refused


def _unescaped(
    texts: pa.Array, cells: Cells, rows: Sequence[int], refused: Refused
) -> tuple[pa.Array, Refused]:
    """The same with the strings of these rows decoded one by one."""
    if not rows:
        return texts, refused
    values: list[str | None] = []
    mask = np.zeros(len(texts), np.bool_)
    mask[list(rows)] = True
    for row in rows:
        try:
            values.append(_STRING.decode(cells[row]))
        except _UNFIT as error:
            values.append(None)
            refused[row] = f"a string cannot be decoded: {str(error).splitlines()[0][:200]}"
    replaced = pc.replace_with_mask(texts, pa.array(mask), pa.array(values, pa.string()))
    return replaced, refused
