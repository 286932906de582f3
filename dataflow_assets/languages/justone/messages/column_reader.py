"""The elements at the ends of parse paths, found in batches of JSON messages.

A batch is decoded into structs made from the paths, which look at nothing else. What does not fit
these (an array on the way, a scalar where an object was expected) is walked value by value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from dataflow_assets.formats.json_types import is_plain_key
from dataflow_assets.languages.justone.messages.parse_path import Item

UNFIT = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
Cells = list[msgspec.Raw] | list[str | None]
"""Elements as they were sent, or the texts of strings."""
Refused = dict[int, str]
"""By row of a batch: why its message cannot be decoded."""
_NULL = msgspec.Raw(b"null")
_BLANKS = b" \t\r\n"  # around JSON
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])


class JustoneReader:
    """Finds the elements of all paths in a batch of messages; made once per task.

    Elements that are strings, or null, in all batches so far are decoded as strings: that takes
    two thirds of the time that their texts would be cut out of the messages in.
    """

    def __init__(self, ways: Sequence[tuple[Item, ...]]) -> None:
        self._ways = ways
        # Messages are walked where a key is none that a member can be named for.
        self._walks = not all(is_plain_key(item) for way in ways for item in way)
        self._tree = {} if self._walks else _tree(ways)
        places = [("", way) if self._walks else _place(self._tree, way) for way in ways]
        self._members = [members for members, _ in places]
        self._finds = [_finder(*place) for place in places]
        self._raw = msgspec.json.Decoder(_struct(self._tree)).decode
        self._nothing = _struct(self._tree)()
        walked = {members for members, rest in places if rest or not members}
        self._strings = frozenset(self._members) - walked
        self._decode: Callable[[bytes], Any] | None = None

    def columns(self, bodies: Sequence[bytes]) -> tuple[list[Cells], Refused]:
        """Returns the elements of each path, null if absent, and the bodies that are not JSON."""
        if self._decode is not None:
            try:
                return self._elements(list(map(self._decode, bodies)), bodies), {}
            except UNFIT:
                pass  # one of them is no string, or a message is no JSON
        rows, odd, refused = self._decode_bodies(bodies)
        if self._walks:
            odd = [*range(len(bodies))]
        complete = self._elements(rows, bodies)
        if not (odd or refused):
            self._learn(complete)
        for row in {*odd, *refused}:  # no object, or one whose members are others than expected
            raw = _NULL if row in refused else msgspec.Raw(bodies[row].strip(_BLANKS))
            for cells, way in zip(complete, self._ways, strict=True):
                cells[row] = _walk(raw, way)
        return [*complete], refused

    def _learn(self, columns: Sequence[Any]) -> None:
        """Which elements may be decoded as strings."""
        others = {
            members
            for members, cells in zip(self._members, columns, strict=True)
            if members in self._strings and not all(map(_is_string, cells))
        }
        self._strings -= others
        struct = _struct(self._tree, self._strings)
        self._decode = msgspec.json.Decoder(struct).decode if self._strings else None

    def _decode_bodies(self, bodies: Sequence[bytes]) -> tuple[list[Any], list[int], Refused]:
        try:
            return list(map(self._raw, bodies)), [], {}
        except UNFIT:
            rows: list[Any] = []
            odd: list[int] = []
            refused: Refused = {}
        for row, body in enumerate(bodies):
            try:
                rows.append(self._raw(body))
            except UNFIT:
                rows.append(self._nothing)
                if wrong := _not_json(body):
                    refused[row] = wrong
                else:
                    odd.append(row)
        return rows, odd, refused

    def _elements(self, rows: Sequence[Any], bodies: Sequence[bytes]) -> list[Any]:
        return [
            _elements_at(rows, bodies, find, way)
            for find, way in zip(self._finds, self._ways, strict=True)
        ]


def _elements_at(
    rows: Sequence[Any],
    bodies: Sequence[bytes],
    find: Callable[[Sequence[Any]], Any],
    way: tuple[Item, ...],
) -> Any:
    if not way:
        return [msgspec.Raw(body.strip(_BLANKS)) for body in bodies]
    try:
        return find(rows)
    except AttributeError:  # a null on the way
        return [_walk(msgspec.Raw(body), way) for body in bodies]


def _is_string(cell: msgspec.Raw) -> bool:
    return bytes(cell)[:1] in (b'"', b"n")


def _tree(ways: Sequence[tuple[Item, ...]]) -> dict[Item, Any]:
    """Nested by key as far as the ways lead through objects; a leaf is None.

    A key with an index behind it, or that is the end of one way and the middle of another, is a
    leaf: the rest is walked.
    """
    tree: dict[Item, Any] = {}
    for head in dict.fromkeys(way[0] for way in ways if way):
        rest = [way[1:] for way in ways if way[:1] == (head,)]
        nested = all(tail and isinstance(tail[0], str) for tail in rest)
        tree[head] = _tree(rest) if nested else None
    return tree


def _struct(
    tree: Mapping[Item, Any], strings: frozenset[str] = frozenset(), path: str = ""
) -> type[msgspec.Struct]:
    """One member for each key; indexes at the top have none, such messages are walked.

    `strings`: the members, with those that lead to them, that are strings or null.
    """
    members: list[Any] = []
    names: dict[str, str] = {}
    for number, (key, inner) in enumerate(tree.items()):
        if isinstance(key, str):
            name = f"c{number}"
            names[name] = key
            members.append((name, *_member(inner, strings, f"{path}{name}")))
    return msgspec.defstruct("Message", members, rename=names, frozen=True, gc=False)


def _member(inner: Any, strings: frozenset[str], path: str) -> tuple[Any, Any]:
    if inner is not None:
        kind = _struct(inner, strings, f"{path}.")
        return kind | None, kind()
    return (str | None, None) if path in strings else (msgspec.Raw, _NULL)


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
    return "", way  # the whole message: every other way ends at a leaf


def _finder(members: str, rest: tuple[Item, ...]) -> Callable[[Sequence[Any]], list[msgspec.Raw]]:
    """Reads one element of every message; written-out access takes half of what attrgetter does."""
    if not members:  # an array at the top is no struct
        return lambda rows: [_NULL] * len(rows)
    find: Callable[[Sequence[Any]], list[msgspec.Raw]]
    find = eval(f"lambda rows: [row.{members} for row in rows]")  # noqa: S307 - c0.c1 and so on
    return find if not rest else lambda rows: [_walk(raw, rest) for raw in find(rows)]


def _walk(raw: msgspec.Raw, way: tuple[Item, ...]) -> msgspec.Raw:
    """The element at the end of a way through sound JSON."""
    for item in way:
        try:
            raw = _OBJECT.decode(raw)[item] if isinstance(item, str) else _ARRAY.decode(raw)[item]
        except (*UNFIT, LookupError):
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
