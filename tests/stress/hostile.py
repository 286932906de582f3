"""Messages that nobody should send: JSON of every kind at every place, and what is no JSON."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from dataflow_assets import registry

RICH = (
    '{"a":{"b":{"c":1,"d":[1,{"e":null}]}},"id":7,"u":{"id":1,"n":"x"},"xs":[{"v":1},2,[3]]}',
    '{"a":1,"b":"x","c":true,"d":[0],"n":1.5,"t":"2026-01-01T00:00:00Z","p":{"q":[1]},"0":[[1]]}',
    '{"id":"a","b":{"a":1,"id":[{"a":2}]},"xs":{"array":[1,{"a":3}]},"t":0,"n":null,"":{"a":4}}',
    '{"o":{"a":1,"b":"2","c":3,"t":9},"x":{"y":1},"k":{"x":1},"total":1,"lvl":"err","a.b":{"b":1}}',
    '{"payload":{"op":"u","before":{"id":1},"after":{"id":2},"source":{"db":"s","lsn":9}}}',
    '{"op":"d","before":{"id":1,"a":{"b":2}},"after":null,"source":null}',
    '[{"a":1,"b":{"a":2}},{"a":"1"},[[{"a":1}]]]',
)
NUMBERS = (
    *("0", "-0", "-0.0", "1.10", "1e3", "1E+3", "0.1e-7", "9007199254740993", "1767225600123"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775809", "1e308", "1e309"),
    *("1e999999", "-1e999999", "1e-999999", "0e999999999", "1e999999999", "1e-999999999"),
    *("1e9999999999999999999", "9" * 100, "9" * 4300, "-" + "9" * 4301, "0." + "1" * 5000),
)
TEXTS = (
    *('""', '" "', '"false"', '"a.b"', '"#"', '"*"', r'"\u0000"', r'"\ud83d\ude00"', '"ÄÖ"'),
    *(
        r'"\ud800"',
        r'"\udc00\ud800"',
        r'"a\ud800b"',
        '"1e999999999"',
        '"0x10"',
        r'"\u0661"',
        '"+1"',
    ),
    *(r'"{\"a\":[1]}"', r'"[\"\\ud800\"]"', r'"{\"a\":"', '"2026-01-01T00:00:00Z"', '"NaN"'),
    *('"9999-12-31T23:59:59.9-23:59"', '"0001-01-01 00:00:00"', '"2026-02-30T00:00:00"', r'"\\"'),
    *(json.dumps("x" * 70_000), json.dumps("[" * 3_000), json.dumps("é\x7f\u2028" * 9)),
)
KEYS = (
    *("", ".", "a.b", "#", "*", "?", "a*", "0", "1", "-1", ":0", "$", "$.a", "@this", "@tostr"),
    *("a", "b", "c", "d", "id", "u", "n", "t", "v", "xs", "array", "payload", "op", "after"),
    *("before", "source", "a_b", "aB", "AB", "ID", "_id", "__", "ÄÖ", "ß", "İ", "ǅ", "\0", "\\"),
    *("a" * 300, "[0]", "['a']", "|", "metadata", "metadata.k", "🙂", " a", "A", "a-b", "null"),
)
PLAIN = ("1", "true", "false", "null", "[]", "{}", '"x"', '"c"', '{"id":1}', '[{"a":1}]')
NO_JSON = (
    *(None, b"", b" \n\t", b"hello", b"{", b'{"a":1', b"[1,]", b"{'a':1}", b"NaN", b"-Infinity"),
    *(b"\xff\xfe", b'{"a":"\xff"}', b'"\xed\xa0\x80"', b"\xef\xbb\xbf{}", b"01", b"+1", b"1 2"),
    *(b"nul", b"\x00", b'{"a":1}x', b'{"a" 1}', b'"\n"', b"1." + b"0" * 9_000 + b"x", b"1e"),
)
DEPTHS = (1, 2, 9, 63, 64, 65, 66, 120, 240, 320, 480, 700, 900, 980, 1_200, 100_000)
OPENS = ('{"a":', "[", '{"aB":[', '{"u":{"id":', '{"payload":{"after":', '{"xs":[')


def _value(rng: random.Random, depth: int = 0) -> str:
    kind = rng.random()
    if kind < 0.6 or depth > 5:
        return rng.choice(rng.choice((NUMBERS, TEXTS, PLAIN)))
    if kind < 0.75:
        return f"[{','.join(_value(rng, depth + 1) for _ in range(rng.randrange(4)))}]"
    return _object(rng, depth)


def _object(rng: random.Random, depth: int = 0) -> str:
    """Keys may stand twice."""
    keys = [rng.choice(KEYS) for _ in range(rng.randrange(6))]
    pairs = (f"{json.dumps(key)}:{_value(rng, depth + 1)}" for key in keys)
    return f"{{{','.join(pairs)}}}"


def _deep(rng: random.Random) -> str:
    opening, depth = rng.choice(OPENS), rng.choice((*DEPTHS, rng.randrange(800, 1_000)))
    closing = "".join({"{": "}", "[": "]"}.get(sign, "") for sign in reversed(opening))
    return opening * depth + rng.choice(NUMBERS) + closing * depth


def _wide(rng: random.Random) -> str:
    count, value = rng.choice((200, 5_000)), rng.choice(PLAIN)
    if rng.random() < 0.5:
        return f'{{"xs":[{",".join([value] * count)}]}}'
    return "{" + ",".join(f'"k{number}":{value}' for number in range(count)) + "}"


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """Where the values inside a JSON text begin and end, the whole one first."""
    decode = json.JSONDecoder().raw_decode
    for place in [0, *(found.end() for found in re.finditer(r"[\[:,]\s*", text))]:
        try:
            yield place, decode(text, place)[1]
        except ValueError:
            continue  # a key, or a bracket inside of a text


def _gaps() -> list[tuple[str, str]]:
    """Bodies that some step knows well, each without one of its values."""
    given = {one.given: None for step in registry.steps().values() for one in step.examples}
    texts = [text for text in (*RICH * 4, *given) if text]
    return [(text[:start], text[end:]) for text in texts for start, end in _spans(text)]


_EXTREMES = (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))
_ANYTHING: tuple[Any, ...] = (
    *(None, "", "text", 0, -1, 2**63, 10**5000, Decimal("1e999999"), Decimal("-0.0"), True),
    *({"a": [None]}, [1], datetime(2026, 7, 20, 9, 59, 59, 250_000, tzinfo=UTC), *_EXTREMES),
)
_METADATA: Mapping[str, tuple[Any, ...]] = {
    "key": ("", "k", '{"id":7}', '{"schema":1,"payload":{"id":7}}', "[" * 2_000, "{", "7", "\0"),
    "headers": ({"id": "9"}, {"X-Id": "", "a": "b"}, {"id": "\0" * 99, "": "x"}),
    "operation": ("insert", "delete", None, 5),
    "topic": _ANYTHING,
    "timestamp": _ANYTHING,
    "id": _ANYTHING,
}


Message = tuple[bytes | None, dict[str, Any]]
"""Its bytes and its metadata."""


class Parts:
    """What messages are put together from, made by a number.

    Drawing many small things is slow in hypothesis: it only puts the parts together, and takes a
    message apart again that fails.
    """

    def __init__(self, number: int) -> None:
        self.rng = rng = random.Random(number)
        self.gaps = _gaps()
        self.values = [*NUMBERS, *TEXTS, *PLAIN, *(_value(rng) for _ in range(1_000))]
        whole = [*(_object(rng) for _ in range(600)), *(_value(rng) for _ in range(100))]
        whole += [*(_deep(rng) for _ in range(60)), *(_wide(rng) for _ in range(6))]
        noise = [rng.randbytes(rng.randrange(20)) for _ in range(60)]
        self.wholes = [*(text.encode() for text in whole), *NO_JSON, *NO_JSON, *noise]
        self.metadata = [{}, *(_metadata(rng) for _ in range(200))]

    def draw(self) -> Message:
        """The next message of this number, without hypothesis."""
        choice = self.rng.choice
        if self.rng.random() < 0.3:
            return choice(self.wholes), choice(self.metadata)
        return _filled(choice(self.gaps), choice(self.values)), choice(self.metadata)

    def strategy(self) -> st.SearchStrategy[Message]:
        """The same for hypothesis."""
        filled = st.builds(_filled, st.sampled_from(self.gaps), st.sampled_from(self.values))
        raw = st.one_of(filled, filled, st.sampled_from(self.wholes))
        return st.tuples(raw, st.sampled_from(self.metadata))


def _filled(gap: tuple[str, str], value: str) -> bytes:
    return f"{gap[0]}{value}{gap[1]}".encode()


def _metadata(rng: random.Random) -> dict[str, Any]:
    """As sources and `debeziumUnwrap` make it: key and headers are text, all else is anything."""
    return {key: rng.choice(_METADATA[key]) for key in _METADATA if rng.random() < 0.5}
