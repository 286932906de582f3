"""Names of Trino's types, taken apart: `array(row(a decimal(10, 2), "b c" varchar))`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from dataflow_assets.sdk.types.table import arguments

_ZONES = (" with time zone", " without time zone")
# Trino shows names without quotes, whatever they are: a type is the last words that can be one.
_FIELD = re.compile(
    r"(?:(.+?) +)??"
    r"((?:time|timestamp)(?:\(\d+\))? with(?:out)? time zone"
    r"|interval (?:day to second|year to month)|double precision|[^ ()]+(?:\(.*\))?)",
    re.DOTALL | re.IGNORECASE,
)


@dataclass(frozen=True)
class TrinoType:
    """One type: its name, its numbers, and the types inside it.

    `labels`: of a row, the names of its fields, as SQL has them without quotes.
    """

    name: str
    numbers: tuple[int, ...] = ()
    inner: tuple[TrinoType, ...] = ()
    labels: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str) -> TrinoType:
        """From the name as `information_schema` or DESCRIBE spells it."""
        return _parse(text.strip())

    @property
    def digits(self) -> int:
        """Digits of a second that a time or a timestamp keeps."""
        return self.numbers[0] if self.numbers else 3

    @property
    def spelling(self) -> str:
        if self.name == "row":
            pairs = zip(self.labels, self.inner, strict=True)
            quoted = (f'"{label.replace(chr(34), chr(34) * 2)}" {t.spelling}' for label, t in pairs)
            return f"row({', '.join(quoted)})"
        if self.inner:
            return f"{self.name}({', '.join(each.spelling for each in self.inner)})"
        if not self.numbers:
            return self.name
        head, zone = self.name, ""
        for each in _ZONES:
            if self.name.endswith(each):
                head, zone = self.name.removesuffix(each), each
        return f"{head}({', '.join(map(str, self.numbers))}){zone}"

    @property
    def is_bounded(self) -> bool:
        """Returns whether it is a text of which it is said how long it may be."""
        return self.name in {"varchar", "char"} and bool(self.numbers)

    def has(self, *names: str) -> bool:
        """Returns whether the type, or one inside it, is one of these."""
        return self.name in names or any(each.has(*names) for each in self.inner)


@lru_cache(1000)
def _parse(text: str) -> TrinoType:
    head, zone = text, ""
    for each in _ZONES:
        if head.lower().endswith(each):
            head, zone = head[: -len(each)], each.replace(" without time zone", "")
    name, _, rest = head.partition("(")
    name = name.strip().lower() + zone
    if not rest:
        return TrinoType(name)
    inside = tuple(arguments(rest.rstrip().removesuffix(")"), '"'))
    if name == "row":
        fields = [_parse_field(each, number) for number, each in enumerate(inside, 1)]
        labels = tuple(label for label, _ in fields)
        return TrinoType(name, (), tuple(kind for _, kind in fields), labels)
    if all(each.isdecimal() for each in inside):
        return TrinoType(name, tuple(map(int, inside)))
    return TrinoType(name, (), tuple(map(_parse, inside)))


def _parse_field(text: str, number: int) -> tuple[str, TrinoType]:
    """A field of a row; one without a name is called by its number."""
    if text.startswith('"'):
        at = 1
        while text[at] != '"' or text[at + 1 : at + 2] == '"':
            at += 2 if text[at] == '"' else 1
        return text[1:at].replace('""', '"'), _parse(text[at + 1 :].strip())
    match = _FIELD.fullmatch(text)
    label, kind = match.groups() if match else (None, text)
    return label or f"field{number}", _parse(kind)
