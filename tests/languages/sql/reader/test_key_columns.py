"""Keys that Flink casts by itself into a larger type of the target's PRIMARY KEY."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from dataflow_assets.languages.sql.engine.types import BYTES, STRING, FlinkType, keeps_apart
from dataflow_assets.languages.sql.state.source import ViewSource
from dataflow_assets.manifests.load import load
from dataflow_assets.testing import choose
from tests.languages.sql.state.test_model import LOG, Run, Sink, limits, log_source
from tests.languages.sql.test_rows import table

ROWS = "k INT, g INT, s STRING, t TIMESTAMP(3), WATERMARK FOR t AS t{}"
KEYED = ROWS.format(", PRIMARY KEY (k) NOT ENFORCED")
PLAIN = ROWS.format("")
TOP = "SELECT * FROM (SELECT g, ROW_NUMBER() OVER (PARTITION BY g ORDER BY k DESC) AS n, k FROM s)"
FIRST = (
    "SELECT k, g FROM (SELECT g, ROW_NUMBER() OVER (PARTITION BY g ORDER BY s) AS n, k FROM s) "
    "WHERE n = 1"
)
ROW_OF_CHAR = FlinkType("ROW", items=(FlinkType("CHAR", 2), FlinkType("INT")), names=("a", "b"))
ARRAY_OF_BYTES = FlinkType("ARRAY", items=(FlinkType("VARBINARY", 2),))
WINDOWS = "TABLE(TUMBLE(TABLE s, DESCRIPTOR(t), INTERVAL '1' MINUTE))"


def row(key: int, group: int, text: str, time: str) -> tuple[bytes | None, bytes | None]:
    body = b'{"k":%d,"g":%d,"s":"%s","t":"2026-01-01 00:0%s"}'
    return b'{"k":%d}' % key, body % (key, group, text.encode(), time.encode())


SENT: list[tuple[bytes | None, bytes | None]] = [
    row(1, 1, "b", "0:01.5"),
    row(2, 1, "a", "0:01.5"),
    row(3, 2, "c", "1:00"),
    row(1, 2, "a", "1:00"),
    (b'{"k":3}', None),
    row(4, 3, "z", "5:00"),
]


def results(folder: Path, columns: str, into: str, query: str, keys: list[str]) -> list[list[str]]:
    """The rows of the target, after each message by itself: deletes find what was upserted."""
    file = folder / "one.sql"
    file.write_text(f"{table('s', columns)}{table('o', into)}INSERT INTO o {query};")
    source = choose(load(file), None).source
    assert isinstance(source, ViewSource)
    messages = log_source(source.source)
    run = Run(source, messages, Sink(keys))
    LOG.clear()
    LOG["0"] = SENT if "PRIMARY" in columns else [one for one in SENT if one[1]]
    for upto in range(1, len(LOG["0"]) + 1):
        run.span({"0": upto}, limits(Random(upto)), small=upto % 2 == 0)
    return sorted(list(map(str, one.values())) for one in run.sink.rows.values())


@pytest.mark.parametrize(
    ("columns", "into", "query", "keys", "wanted"),
    [
        pytest.param(
            KEYED,
            "g BIGINT, n BIGINT, k BIGINT, PRIMARY KEY (g, n) NOT ENFORCED",
            f"{TOP} WHERE n <= 2",
            ["g", "n"],
            [["1", "1", "2"], ["2", "1", "1"], ["3", "1", "4"]],
            id="ranked, INT into BIGINT",
        ),
        pytest.param(
            KEYED,
            "k DECIMAL(12, 0), g BIGINT, PRIMARY KEY (k) NOT ENFORCED",
            FIRST,
            ["k"],
            [["1", "2"], ["2", "1"], ["4", "3"]],
            id="another key of ranked rows, INT into DECIMAL",
        ),
        pytest.param(
            KEYED,
            "t TIMESTAMP(6), n BIGINT, PRIMARY KEY (t) NOT ENFORCED",
            "SELECT t, COUNT(*) FROM s GROUP BY t",
            ["t"],
            [
                ["2026-01-01 00:00:01.5", "1"],
                ["2026-01-01 00:01:00", "1"],
                ["2026-01-01 00:05:00", "1"],
            ],
            id="grouped, TIMESTAMP(3) into TIMESTAMP(6)",
        ),
        pytest.param(
            PLAIN,
            "b TIMESTAMP, e TIMESTAMP(6), n BIGINT, PRIMARY KEY (b, e) NOT ENFORCED",
            f"SELECT window_start, window_end, COUNT(*) FROM {WINDOWS} "
            "GROUP BY window_start, window_end",
            ["b", "e"],
            [
                ["2026-01-01 00:00:00", "2026-01-01 00:01:00", "2"],
                ["2026-01-01 00:01:00", "2026-01-01 00:02:00", "2"],
            ],
            id="windows into TIMESTAMP",
        ),
    ],
)
def test_a_key_may_be_of_a_larger_type(
    folder: Path, columns: str, into: str, query: str, keys: list[str], wanted: list[list[str]]
) -> None:
    assert results(folder, columns, into, query, keys) == wanted


def test_a_key_without_state_may_be_of_a_larger_type(folder: Path) -> None:
    into = "k BIGINT, v BIGINT, PRIMARY KEY (k) NOT ENFORCED"
    file = folder / "one.sql"
    file.write_text(f"{table('s', KEYED)}{table('o', into)}INSERT INTO o SELECT k, k FROM s;")
    assert choose(load(file), None).name == "o.s"


@pytest.mark.parametrize(
    ("given", "wanted", "apart"),
    [
        (FlinkType("INT"), FlinkType("BIGINT"), True),
        (FlinkType("BIGINT"), FlinkType("INT"), False),
        (FlinkType("BIGINT"), FlinkType("DOUBLE"), False),
        (FlinkType("INT"), FlinkType("DOUBLE"), True),
        (FlinkType("INT"), FlinkType("FLOAT"), False),
        (FlinkType("SMALLINT"), FlinkType("FLOAT"), True),
        (FlinkType("FLOAT"), FlinkType("DOUBLE"), True),
        (FlinkType("DOUBLE"), FlinkType("FLOAT"), False),
        (FlinkType("DECIMAL", 9, 2), FlinkType("DECIMAL", 12, 2), True),
        (FlinkType("DECIMAL", 9, 2), FlinkType("DECIMAL", 9, 1), False),
        (FlinkType("DECIMAL", 9, 2), FlinkType("DECIMAL", 9, 3), False),
        (FlinkType("DECIMAL", 10, 0), FlinkType("DECIMAL", 5, 0), False),
        (FlinkType("BIGINT"), FlinkType("DECIMAL", 19, 0), True),
        (FlinkType("BIGINT"), FlinkType("DECIMAL", 18, 0), False),
        (FlinkType("DECIMAL", 9, 2), FlinkType("DOUBLE"), False),
        (FlinkType("DECIMAL", 9, 0), FlinkType("BIGINT"), False),
        (FlinkType("TIMESTAMP", 3), FlinkType("TIMESTAMP", 6), True),
        (FlinkType("TIMESTAMP", 6), FlinkType("TIMESTAMP", 3), False),
        (FlinkType("TIMESTAMP", 3), FlinkType("TIMESTAMP_LTZ", 3), False),
        (FlinkType("CHAR", 2), FlinkType("VARCHAR", 2), True),
        (FlinkType("VARCHAR", 2), FlinkType("CHAR", 3), False),
        (FlinkType("CHAR", 2), FlinkType("CHAR", 2), True),
        (FlinkType("CHAR", 2), FlinkType("CHAR", 3), False),
        (FlinkType("VARBINARY", 2), FlinkType("VARBINARY", 2), True),
        (FlinkType("VARBINARY", 2), FlinkType("VARBINARY", 3), False),
        (FlinkType("VARBINARY", 2), BYTES, True),
        (ROW_OF_CHAR, ROW_OF_CHAR, True),
        (
            ROW_OF_CHAR,
            replace(ROW_OF_CHAR, items=(FlinkType("CHAR", 2), FlinkType("BIGINT"))),
            False,
        ),
        (ROW_OF_CHAR, replace(ROW_OF_CHAR, items=(STRING, FlinkType("BIGINT"))), True),
        (ROW_OF_CHAR, replace(ROW_OF_CHAR, items=(FlinkType("CHAR", 3), FlinkType("INT"))), False),
        (
            FlinkType("ARRAY", items=(FlinkType("VARBINARY", 2),)),
            FlinkType("ARRAY", items=(BYTES,)),
            True,
        ),
        (ARRAY_OF_BYTES, replace(ARRAY_OF_BYTES, items=(FlinkType("VARBINARY", 3),)), False),
        (FlinkType("VARCHAR", 3), FlinkType("VARCHAR", 2), False),
        (
            FlinkType("ARRAY", items=(FlinkType("INT"),)),
            FlinkType("ARRAY", items=(FlinkType("BIGINT"),)),
            True,
        ),
        (
            FlinkType("ARRAY", items=(FlinkType("BIGINT"),)),
            FlinkType("ARRAY", items=(FlinkType("INT"),)),
            False,
        ),
    ],
)
def test_which_casts_keep_values_apart(given: FlinkType, wanted: FlinkType, *, apart: bool) -> None:
    assert keeps_apart(given, wanted) == apart
