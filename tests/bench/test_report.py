"""What the benchmark prints and checks of figures that have a bound of their own."""

from __future__ import annotations

import pytest

from bench import connect, report


@pytest.mark.parametrize(
    ("seconds", "size", "said"),
    [
        (7.96, 449_900_000, "8.0 s until the first row (at most 8), 449.9 MB of the process (PSS)"),
        (8.1, 400_000_000, "8.1 s until the first row (at most 8, missed), 400.0 MB"),
        (3.0, 450_100_000, "450.1 MB of the process (PSS) (at most 450, missed)"),
    ],
)
def test_a_flow_that_starts_late_or_is_large_misses_its_bound(
    seconds: float, size: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    figure = {
        "rows_per_second": 1.0,
        "rounds": [1.0],
        "cpu_seconds_per_million_all": 1.0,
        "cpu_seconds_per_million": dict.fromkeys(report.GROUPS, 1.0),
        "peak_bytes": 1,
        "first_row_seconds": seconds,
        "process_bytes": size,
    }
    measured = {"flow-connect-file": {**figure, "limits": connect.limits(figure)}}
    result = {"machine": report.machine(), "connect": measured}
    assert report.passed(result) is ("missed" not in said)
    report.show(result)
    assert said in " ".join(capsys.readouterr().out.split())
