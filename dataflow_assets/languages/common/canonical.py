"""Values as bytes that no name in the code is part of: what stored digests are made of.

A class has a form: a tag and names of fields, which stay as they are for ever, whatever the class
and its fields are called. A value becomes JSON: null, true, numbers and texts stand for themselves,
everything else is a list that begins with its tag.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from functools import cached_property
from typing import Any

_TEXTS: Mapping[type, tuple[str, Callable[[Any], str]]] = {
    float: ("float", repr),  # -0.0, nan and inf have names of their own
    Decimal: ("decimal", str),  # 1.5 and 1.50 differ
    bytes: ("bytes", bytes.hex),
    date: ("date", date.isoformat),
    time: ("time", time.isoformat),
    datetime: ("datetime", datetime.isoformat),
}


@dataclass(frozen=True)
class Form:
    """The form of one class: a field whose attribute was renamed is written `stored=attribute`."""

    kind: type
    tag: str
    names: str
    """The fields that are always encoded, with blanks between them, in an order that stays."""
    later: Mapping[str, object] = field(default_factory=dict)
    """Fields that came later, each with the value that all instances had until then: a field with
    this value is left out."""
    ignored: frozenset[str] = frozenset()
    """Attributes that are never encoded: they change nothing."""

    @cached_property
    def attributes(self) -> Mapping[str, str]:
        """The attributes that are always encoded, by their stored names."""
        pairs = (name.partition("=") for name in self.names.split())
        return {stored: attribute or stored for stored, _, attribute in pairs}

    def later_fields(self, value: object) -> Iterator[tuple[str, object]]:
        """Yields the stored names and values of those later fields that say something."""
        for name, before in self.later.items():
            stored, _, attribute = name.partition("=")
            field_value = getattr(value, attribute or stored)
            if field_value != before:
                yield stored, field_value


class Forms:
    """All classes that a value may be made of, each with its form."""

    def __init__(self, *forms: Form) -> None:
        self.all = forms
        self._by_kind = {one.kind: one for one in forms}

    def form(self, value: object) -> Form | None:
        """Return the form of an instance; None where its class has none, as those of Python."""
        return self._by_kind.get(type(value))

    def digest(self, value: object) -> str:
        """Return 64 hex digits. Raises TypeError where a class has no form."""
        text = json.dumps(self.tree(value), separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def tree(self, value: object) -> object:
        """Encode as JSON: a member of an Enum is its value, and a list is as good as a tuple."""
        if (form := self._by_kind.get(type(value))) is not None:
            fields = [[k, self.tree(getattr(value, a))] for k, a in form.attributes.items()]
            return [form.tag, *fields, *[[k, self.tree(v)] for k, v in form.later_fields(value)]]
        if isinstance(value, Enum):
            return self.tree(value.value)
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, tuple | list):
            return ["list", *[self.tree(one) for one in value]]
        if isinstance(value, Mapping):
            pairs = [[self.tree(key), self.tree(one)] for key, one in value.items()]
            return ["map", *sorted(pairs, key=json.dumps)]
        if type(value) in _TEXTS:
            tag, text = _TEXTS[type(value)]
            return [tag, text(value)]
        raise TypeError(f"{type(value).__qualname__} has no form among those of stored digests")
