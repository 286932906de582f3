"""The thirty cases of conformance: what is sent, by which query, and what readers see then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.languages.sql.files import Sent

Options = Mapping[str, str]
VIEWS = "user_id BIGINT, user_region STRING"
PER_REGION = "user_region STRING, pv BIGINT, uv BIGINT, PRIMARY KEY (user_region) NOT ENFORCED"
PAGE = "SELECT user_region, COUNT(*), COUNT(DISTINCT user_id) FROM s GROUP BY user_region"
KEYED = "k BIGINT, a BIGINT, PRIMARY KEY (k) NOT ENFORCED"
ALL = "SELECT * FROM s"
GROUPED = "k BIGINT, g STRING, a BIGINT, PRIMARY KEY (k) NOT ENFORCED"
PER_GROUP = "g STRING, n BIGINT, PRIMARY KEY (g) NOT ENFORCED"
IGNORE: Options = {"json.ignore-parse-errors": "true"}
IGNORE_KEYED: Options = {
    "key.json.ignore-parse-errors": "true",
    "value.json.ignore-parse-errors": "true",
}
EU = b'{"user_region":"eu"}'


@dataclass(frozen=True)
class Case:
    """One case, by its number in the reference."""

    number: int
    source: str
    target: str
    query: str
    sent: Sequence[Sent]
    seen: Sequence[Sent]
    """Key and value of each record, in order."""
    rejected: Sequence[str] = ()
    """Parts of the reasons, in order."""
    reads: Options = field(default_factory=dict)
    writes: Options = field(default_factory=dict)
    settings: str = ""
    grouped: bool = False
    """It has a state, and each record is a change of its own."""


def view(user: int | None, region: str | None) -> Sent:
    """A page view."""
    names = "null" if region is None else f'"{region}"'
    number = "null" if user is None else user
    return None, f'{{"user_id":{number},"user_region":{names}}}'.encode()


def counted(region: str, pv: int, uv: int) -> Sent:
    """A row of the page's table."""
    row = f'{{"user_region":"{region}","pv":{pv},"uv":{uv}}}'
    return f'{{"user_region":"{region}"}}'.encode(), row.encode()


def change(key: int, value: str | None) -> Sent:
    """A record of an upsert table."""
    return b'{"k":%d}' % key, None if value is None else value.encode()


def total(group: str, number: int | None) -> Sent:
    """A row of a sum or count."""
    row = None if number is None else f'{{"g":"{group}","n":{number}}}'.encode()
    return f'{{"g":"{group}"}}'.encode(), row


def _page(number: int, sent: Sequence[Sent], seen: Sequence[Sent], **more: object) -> Case:
    return Case(number, VIEWS, PER_REGION, PAGE, sent, seen, grouped=number != 11, **more)  # type: ignore[arg-type]


def _upsert(number: int, sent: Sequence[Sent], seen: Sequence[Sent], **more: object) -> Case:
    return Case(number, KEYED, KEYED, ALL, sent, seen, **more)  # type: ignore[arg-type]


def _totals(number: int, call: str, sent: Sequence[Sent], seen: Sequence[Sent]) -> Case:
    query = f"SELECT g, {call} FROM s GROUP BY g"
    return Case(number, GROUPED, PER_GROUP, query, sent, seen, grouped=True)


def _plain(number: int, sent: bytes, seen: Sequence[Sent], **more: object) -> Case:
    return Case(number, VIEWS, KEYED_VIEWS, READ, [(None, sent)], seen, **more)  # type: ignore[arg-type]


KEYED_VIEWS = "k BIGINT, user_id BIGINT, PRIMARY KEY (k) NOT ENFORCED"
READ = "SELECT 1, user_id FROM s"
TIMES = "k BIGINT, ts TIMESTAMP(3), PRIMARY KEY (k) NOT ENFORCED"
WINDOW = (
    "SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' "
    "SECOND)) GROUP BY window_start, window_end"
)
EVENTS = "ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '2' SECOND"
WINDOWS = "window_start TIMESTAMP(3), n BIGINT, PRIMARY KEY (window_start) NOT ENFORCED"
TOP = (
    "SELECT g, a FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY g ORDER BY a DESC) AS rn FROM s) "
    "WHERE rn = 1"
)


def event(seconds: str) -> Sent:
    """A row at a second of 2020."""
    return None, f'{{"ts":"2020-01-01 00:00:{seconds}"}}'.encode()


_ENDED: Sent = (
    b'{"window_start":"2020-01-01 00:00:00"}',
    b'{"window_start":"2020-01-01 00:00:00","n":2}',
)
CASES: Sequence[Case] = (
    _page(1, [view(1, "eu")], [counted("eu", 1, 1)]),
    _page(2, [view(1, "eu"), view(1, "eu")], [counted("eu", 1, 1), counted("eu", 2, 1)]),
    _page(3, [view(1, "eu"), view(2, "eu")], [counted("eu", 1, 1), counted("eu", 2, 2)]),
    _page(4, [view(None, "eu")], [counted("eu", 1, 0)]),
    _page(5, [view(1, None)], [], rejected=["Column 'user_region' is NOT NULL"]),
    _page(6, [view(1, "eu"), view(2, "us")], [counted("eu", 1, 1), counted("us", 1, 1)]),
    _page(
        7,
        [view(1, "eu")],
        [(EU, b'{"pv":1,"uv":1}')],
        writes={"value.fields-include": "EXCEPT_KEY"},
    ),
    _page(8, [view(1, "eu")], [(b"eu", counted("eu", 1, 1)[1])], writes={"key.format": "raw"}),
    _page(
        9,
        [view(1, "eu")],
        [(bytes.fromhex("046575"), bytes.fromhex("04657502020202"))],
        writes={"key.format": "avro", "value.format": "avro"},
    ),
    _page(
        10,
        [view(1, "eu")],
        [(b"eu", b"eu,1,1")],
        writes={"key.format": "csv", "value.format": "csv"},
    ),
    _page(
        11,
        [view(1, "eu"), view(1, "eu")],
        [counted("eu", 2, 1)],
        writes={"sink.buffer-flush.max-rows": "100", "sink.buffer-flush.interval": "1s"},
    ),
    Case(
        12,
        VIEWS,
        PER_REGION,
        f"{PAGE} HAVING COUNT(*) < 2",
        [view(1, "eu"), view(1, "eu")],
        [counted("eu", 1, 1), (EU, None)],
        grouped=True,
    ),
    _upsert(
        13,
        [change(1, '{"k":1,"a":1}'), change(1, '{"k":1,"a":2}')],
        [change(1, '{"k":1,"a":1}'), change(1, '{"k":1,"a":2}')],
    ),
    _upsert(
        14,
        [change(1, '{"k":1,"a":1}'), change(1, None)],
        [change(1, '{"k":1,"a":1}'), change(1, None)],
    ),
    # Without state a tombstone of a key that was never there, and an equal row, are passed on:
    # whoever reads the topic as a table sees the same.
    _upsert(15, [change(9, None)], [change(9, None)]),
    _upsert(16, [change(1, '{"k":1,"a":1}')] * 2, [change(1, '{"k":1,"a":1}')] * 2),
    _upsert(17, [(None, b'{"a":1}')], [], rejected=["the record has no key"]),
    _upsert(18, [change(1, "null")], [], rejected=["the record is not a JSON object"]),
    _upsert(
        18,
        [change(1, '{"k":1,"a":1}'), change(1, "null")],
        [change(1, '{"k":1,"a":1}')],
        reads=IGNORE_KEYED,
    ),
    _totals(
        19,
        "SUM(a)",
        [change(1, '{"g":"x","a":5}'), change(1, '{"g":"x","a":7}')],
        [total("x", 5), total("x", 7)],
    ),
    _totals(
        20,
        "SUM(a)",
        [change(1, '{"g":"x","a":5}'), change(1, '{"g":"y","a":5}')],
        [total("x", 5), total("x", None), total("y", 5)],
    ),
    _totals(
        21,
        "COUNT(*)",
        [change(1, '{"g":"x"}'), change(1, None)],
        [total("x", 1), total("x", None)],
    ),
    _upsert(
        22, [change(1, '{"a":1}'), change(1, None)], [change(1, '{"k":1,"a":1}'), change(1, None)]
    ),
    _plain(23, b"{bad", [], rejected=["not JSON"]),
    _plain(23, b"{bad", [], reads=IGNORE),
    _plain(24, b'{"user_id":"x"}', [change(1, '{"k":1,"user_id":null}')], reads=IGNORE),
    _plain(25, b'{"user_id":"7"}', [change(1, '{"k":1,"user_id":7}')]),
    _plain(25, b"{}", [change(1, '{"k":1,"user_id":null}')]),
    _plain(
        25,
        b"{}",
        [],
        rejected=["the field user_id is missing"],
        reads={"json.fail-on-missing-field": "true"},
    ),
    Case(
        26,
        "ts TIMESTAMP(3)",
        TIMES,
        "SELECT 1, ts FROM s",
        [(None, b'{"ts":"2020-12-30T12:13:14"}')],
        [],
        rejected=["the field ts: not a time like 2020-12-30 12:13:14"],
    ),
    Case(
        26,
        "ts TIMESTAMP(3)",
        TIMES,
        "SELECT 1, ts FROM s",
        [(None, b'{"ts":"2020-12-30T12:13:14"}')],
        [change(1, '{"k":1,"ts":"2020-12-30 12:13:14"}')],
        reads={"json.timestamp-format.standard": "ISO-8601"},
    ),
    Case(
        27,
        EVENTS,
        WINDOWS,
        WINDOW,
        [event("01"), event("09"), event("12")],
        [_ENDED],
        grouped=True,
    ),
    Case(
        28,
        EVENTS,
        WINDOWS,
        WINDOW,
        [event("01"), event("09"), event("12"), event("05")],
        [_ENDED],
        grouped=True,
    ),
    Case(
        29,
        EVENTS,
        WINDOWS,
        WINDOW,
        [event("01"), event("09"), event("12")],
        [_ENDED],
        grouped=True,
        settings="SET 'table.exec.source.idle-timeout' = '1 s';",
    ),
    Case(
        30,
        GROUPED,
        PER_GROUP,
        TOP,
        [
            *(change(n, f'{{"g":"x","a":{a}}}') for n, a in ((1, 5), (2, 9), (3, 3))),
            change(2, None),
        ],
        [total("x", 5), total("x", 9), total("x", 5)],
        grouped=True,
    ),
)
