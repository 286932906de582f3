"""Ordinary YAML text -> nodes, by libyaml: a dozen times as fast as the parser for all other text.

libyaml reads YAML 1.1 and its messages are for people who write parsers. Ordinary is what both
parsers read alike: no anchors, tags, block scalars, escapes, tabs, directives, and ASCII only. The
kinds of values are told apart as in YAML 1.2.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml
from ruamel.yaml import YAML
from ruamel.yaml.error import StringMark
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.events import (
    CollectionEndEvent,
    CollectionStartEvent,
    Event,
    ScalarEvent,
    SequenceStartEvent,
)

from dataflow_assets.languages.common.yaml_bounds import MOST_DEPTH, TooDeep, Work

_UNUSUAL = re.compile(
    r"""
    [^\n\x20-\x7e] | \\               # tabs, other line ends, other scripts, escapes
    | (?:^|[ \[\]{},:])[&*!%@`?|>]      # an anchor, an alias, a tag, a directive, a block scalar
    | ^\.\.\.                         # the end of a document
    | [\[\]{},\"':][#]                # a comment that both see as one only behind a space
    | ["'\]}][ ]*:[^ \n]              # JSON without spaces: they disagree inside brackets
    """,
    re.VERBOSE | re.MULTILINE,
)
_NAMES = YAML(typ="safe", pure=True).resolver  # of the kinds of values


class Refused(Exception):
    """libyaml does not take the text: the other parser says why, or takes it."""


def reads(text: str) -> bool:
    """Whether a document is ordinary, and libyaml is there."""
    return yaml.__with_libyaml__ and not _UNUSUAL.search(text)


def composed(text: str, work: Work) -> Node | None:
    """The node of one ordinary document, None where it has none; raises Refused, TooDeep, TooMuch.

    It is equal to what the other parser makes of the text.
    """
    try:
        return _Document(text, work).node()
    except yaml.YAMLError as error:
        raise Refused from error


class _Document:
    """One document's events on their way to nodes."""

    def __init__(self, text: str, work: Work) -> None:
        self._text, self._work = text, work
        self._events: Iterator[Event] = yaml.parse(text, Loader=yaml.CSafeLoader)

    def node(self) -> Node | None:
        _stream, document = next(self._events), next(self._events)
        if isinstance(document, yaml.StreamEndEvent):
            return None
        found = self._node(next(self._events), 0)
        next(self._events)
        if not isinstance(next(self._events), yaml.StreamEndEvent):
            raise Refused
        return found

    def _node(self, event: Event, depth: int) -> Node:
        if depth > MOST_DEPTH:
            raise TooDeep
        if not isinstance(event, ScalarEvent | CollectionStartEvent) or event.anchor or event.tag:
            raise Refused
        self._work.token()
        if isinstance(event, ScalarEvent):
            return self._scalar(event)
        return self._collection(event, depth)

    def _scalar(self, event: ScalarEvent) -> Node:
        if event.value == "" and event.implicit[0]:
            raise Refused  # both see that nothing is there, at different places
        tag = _NAMES.resolve(ScalarNode, event.value, event.implicit)
        start, end = self._marks(event)
        return ScalarNode(tag, event.value, start, end, style=event.style)

    def _collection(self, event: Any, depth: int) -> Node:
        kind = SequenceNode if isinstance(event, SequenceStartEvent) else MappingNode
        children: list[Any] = []
        while not isinstance(child := next(self._events), CollectionEndEvent):
            children.append(self._node(child, depth + 1))
        if kind is MappingNode:
            children = [*zip(children[::2], children[1::2], strict=True)]
        tag = _NAMES.resolve(kind, None, (True, False))
        start, end = self._marks(event)
        return kind(tag, children, start, end, flow_style=event.flow_style)

    def _marks(self, event: Any) -> list[StringMark]:
        return [
            StringMark("", mark.index, mark.line, mark.column, self._text, mark.index)
            for mark in (event.start_mark, event.end_mark)
        ]
