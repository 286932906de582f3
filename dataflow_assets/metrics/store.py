"""The counters and gauges of all processes of one machine, in one file that outlives them.

A process adds what is new since its last time, in one transaction: nothing is counted twice, no
counter goes back when a process or the endpoint ends, and the file grows with the number of series
only. Series that nobody has touched for a month go.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

FILE = "dataflow-metrics.sqlite"
STALE_SECONDS = 60.0  # after which a gauge counts for nothing: its process is gone
KEPT_SECONDS = 30 * 86_400.0
_TABLE = """
CREATE TABLE IF NOT EXISTS series (
    name TEXT, labels TEXT, bucket TEXT, value REAL, at REAL, PRIMARY KEY (name, labels, bucket)
) WITHOUT ROWID"""
_ADD = """
INSERT INTO series VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET value = value + excluded.value, at = excluded.at"""
_SET = "INSERT OR REPLACE INTO series VALUES (?, ?, ?, ?, ?)"


@dataclass(frozen=True)
class Series:
    """One number: a counter, a gauge, or a part of a histogram."""

    name: str
    labels: tuple[str, ...]
    bucket: str = ""
    """The index of a bucket, or `sum`; empty where there are none."""


@dataclass(frozen=True)
class Sample:
    """A series with its value, and how many seconds ago that was told."""

    series: Series
    value: float
    age: float = 0.0


class MetricsStore:
    """The file in one folder; every call opens it anew, so that a process may fork meanwhile."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE

    def write(self, added: Mapping[Series, float], gauges: Mapping[Series, float]) -> None:
        """Adds to counters and sets gauges, all of it or nothing. Raises sqlite3.Error, OSError."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        now = time.time()
        with self._open() as connection:
            connection.executemany(_ADD, _rows(added, now))
            connection.executemany(_SET, _rows(gauges, now))

    def tidy(self) -> None:
        """Removes what nobody has touched for a month. Raises sqlite3.Error, OSError."""
        with self._open() as connection:
            oldest = time.time() - KEPT_SECONDS
            connection.execute("DELETE FROM series WHERE at < ?", (oldest,))

    def read(self) -> list[Sample]:
        """Everything that was counted, in the order of names. Raises sqlite3.Error, OSError."""
        if not self._file.exists():
            return []
        now = time.time()
        with self._open() as connection:
            rows = connection.execute("SELECT * FROM series ORDER BY name, labels").fetchall()
        return [
            Sample(Series(name, tuple(json.loads(labels)), bucket), value, now - at)
            for name, labels, bucket, value, at in rows
        ]

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._file, timeout=10)) as connection, connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")  # a counter must not go back either
            connection.execute(_TABLE)
            yield connection


def store() -> MetricsStore | None:
    """The file of this machine: in DATAFLOW_METRICS, else in DAGSTER_HOME; None without either."""
    folder = os.environ.get("DATAFLOW_METRICS") or os.environ.get("DAGSTER_HOME")
    return MetricsStore(Path(folder)) if folder else None


def _rows(values: Mapping[Series, float], now: float) -> Iterator[tuple[object, ...]]:
    for series, value in values.items():
        yield series.name, json.dumps(series.labels), series.bucket, value, now
