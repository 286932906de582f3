"""Paths and conditions for the page of steps; what their examples find is looked up."""

from __future__ import annotations

import inspect

from dataflow_assets.languages.common.pages import escape
from dataflow_assets.records.conditions import condition
from dataflow_assets.records.conditions.condition import Condition
from dataflow_assets.records.paths.modifiers import SUPPORTED
from dataflow_assets.records.paths.path import Path
from dataflow_assets.records.record import MISSING, Record, encode, parse

_BODY = '{"a":{"b":1,"c.d":2},"xs":[{"k":"x","v":1},{"k":"y","v":2},[3]],"7":null}'
_PATHS = (
    ("a.b", "a key of a key; `$.a.b` is the same path"),
    ("xs.0.k", "an element of an array, counted from 0"),
    ("xs[0].k", "*Addition.* the same"),
    (r"a.c\.d", "a dot that belongs to the key"),
    ("a['c.d']", "*Addition.* the same; `['']` is the empty key"),
    ("7", "null is a value: it is found"),
    ("xs.#", "how many elements"),
    ("xs.#.k", "what follows, of every element that has it"),
    ("xs[*].v", "*Addition.* the same; without more the elements themselves"),
    ("*.b", "the first key that fits: `*` any text, `?` one character"),
    ('xs.#(k=="y").v', "the first element for which it holds"),
    ("xs.#(v>0)#.k", "all of them; operators `== != < <= > >= % !%`, `%` with a pattern"),
    ("a|@keys", "`|`: what follows looks at the whole of what came before"),
    ("xs.2.5", "nothing is there: *missing*"),
)
_WRITING = f"""
Modifiers: {", ".join(f"`@{name}`" for name in SUPPORTED)}.

Paths that write may hold keys and indexes only. Parents that are missing, or null, are made: an
array where an index follows, else an object; `:0` is a key of digits, `-1` the place after an
array's last element. Any other value in the way rejects the record. No path has more than 100
parts. A path that cannot be read or written is a finding with its column.
"""
_CONDITIONS = (
    "$.a.b",
    "$.7",
    "$.a.b == '1'",
    "$.gone != 'x'",
    "!$.gone == 'x'",
    "$.a.b >= 0.5 && ($.gone || $.xs)",
    "$.a.b in [1, 'x']",
    "$.xs.0.k =~ '^[xy]$'",
    "metadata.topic == orders",
)


def paths() -> str:
    """Returns what a path may say, and what it finds in one body."""
    rows = [f"| `{escape(path)}` | {escape(says)} | {_find(path)} |" for path, says in _PATHS]
    head = f"The dialect of gjson and sjson. What each finds in `{_BODY}`:"
    table = ["| Path | Meaning | Finds |", "|---|---|---|", *rows]
    return "\n".join(["## Paths", "", head, "", *table, _WRITING])


def _find(path: str) -> str:
    value = Path.parse(path).getter()(parse(_BODY.encode()))
    return "*missing*" if value is MISSING else f"`{encode(value).decode()}`"


def conditions() -> str:
    """The grammar, from where it is written down, and what holds for the same body."""
    about = inspect.cleandoc(condition.__doc__ or "").partition("\n\n")[2]
    record = Record(parse(_BODY.encode()), {"topic": "orders"})
    held = [(text, Condition.parse(text).compile()(record)) for text in _CONDITIONS]
    rows = [f"| `{escape(text)}` | {'holds' if holds else 'does not'} |" for text, holds in held]
    marked = "`<`, `<=`, `>`, `>=`, `in` and `=~` are *additions*."
    head = "For the body above, from the topic `orders`:"
    table = ["| Condition | |", "|---|---|", *rows, ""]
    return "\n".join(["## Conditions", "", about, "", marked, "", head, "", *table])
