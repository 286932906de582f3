"""Random queries over windows, and random logs, without servers: the result is the model's."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from dataflow_assets.manifests.load import load
from dataflow_assets.testing import chosen
from dataflow_assets.views.source import ViewSource
from tests.sql import model, model_windows
from tests.sql.model import Row
from tests.sql.model_windows import Filled, Windowed, windowed
from tests.sql.test_model import BAD, LOG, LogSource, Run, Sink, limits
from tests.sql.test_model import _json as in_json
from tests.sql.test_model import _value as value_of
from tests.sql.test_model import _wanted as wanted_of

_BROKER = "'properties.bootstrap.servers' = 'k:9092'"


def _loaded(folder: Path, query: Windowed) -> ViewSource:
    """The query's file as a flow."""
    columns = ", ".join(f"{name} {kind}" for name, kind in query.query.columns)
    names = ", ".join(name for name, _ in query.query.columns if name.startswith("x"))
    file = folder / "one.sql"
    file.write_text(
        f"CREATE TABLE s ({model.COLUMNS}, WATERMARK FOR t AS t - INTERVAL '{query.delay}' SECOND) "
        f"WITH ('connector' = 'kafka', 'topic' = 's', {_BROKER}, 'format' = 'json');\n"
        f"CREATE TABLE o ({columns}, PRIMARY KEY ({names}) NOT ENFORCED) WITH ("
        f"'connector' = 'upsert-kafka', 'topic' = 'o', {_BROKER}, 'key.format' = 'json', "
        f"'value.format' = 'json');\nINSERT INTO o {query.text()};\n"
    )
    source = chosen(load(file), None).source
    assert isinstance(source, ViewSource)
    return source


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Without fsync: nobody takes the power away."""
    found = tmp_path_factory.mktemp("states")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATAFLOW_FILES", str(found))
        patch.setattr(os, "fsync", lambda _: None)
        yield found


def _checked(examples: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return lambda test: settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )(given(windowed(), st.randoms(use_true_random=True))(test))


@_checked(40)
def test_some_queries_over_windows(folder: Path, query: Windowed, random: Random) -> None:
    check(folder, query, random)


@pytest.mark.full
@pytest.mark.timeout(3600)
@_checked(500)
def test_any_query_over_windows(folder: Path, query: Windowed, random: Random) -> None:
    check(folder, query, random)


def check(folder: Path, query: Windowed, random: Random) -> None:
    """Whatever is read at once and in which way: final rows, rows that were late, and the state."""
    source = _loaded(folder, query)
    messages = LogSource.model_construct(**dict(source.source))
    keys = [name for name, _ in query.query.columns if name.startswith("x")]
    run, filled, number = Run(source, messages, Sink(keys)), Filled(query), 0
    bad: list[tuple[int, int]] = []
    LOG.clear()
    LOG.update({"0": [], "1": []})
    for _ in range(random.randint(1, 5)):
        span: dict[str, list[Row]] = {"0": [], "1": []}
        for _ in range(random.randint(0, 25)):
            number += 1
            _append(random, number, span, filled, bad)
        run.span({p: len(log) for p, log in LOG.items()}, limits(random), small=_coin(random))
        filled.take(span)
    assert run.manifest is not None
    assert run.manifest.late == filled.late
    assert sorted(run.sink.refused) == sorted(bad)
    assert _found(run, query) == _wanted(run, query, filled)
    if not filled.open:
        _check_empty(run, query)


def _check_empty(run: Run, query: Windowed) -> None:
    """Nothing is kept of windows that are final, but marks that keys are gone."""
    assert run.manifest is not None
    stages = len(run.source.view.stages)
    windows = [at for at in range(stages) if run.source.view.stages[at].window is not None]
    names = [f"{kind}-{at}" for at in windows for kind in ("groups", "distinct")]
    assert [run.manifest.tables[one].first for one in names if one in run.manifest.tables] == [
        None for one in names if one in run.manifest.tables
    ], query


def _coin(random: Random) -> bool:
    return random.random() < 0.5


def _append(
    random: Random, number: int, span: dict[str, list[Row]], filled: Filled, bad: list[Any]
) -> None:
    """A message into the log; a row without a time, and one that cannot be read, is rejected."""
    partition = random.choice(["0", "1"])
    log = LOG[partition]
    if random.random() < 0.05:
        bad.append((int(partition), len(log)))
        log.append((None, BAD))
        return
    row = {"k": 1, **model_windows.row(random, number)}
    if row["t"] is None and filled.passes(row):
        bad.append((int(partition), len(log)))
    log.append((None, in_json(row)))
    span[partition].append(row)


def _found(run: Run, query: Windowed) -> list[Row]:
    kinds = dict(query.query.columns)
    rows = [{n: value_of(v, kinds[n]) for n, v in row.items()} for row in run.sink.rows.values()]
    return sorted(rows, key=repr)


def _wanted(run: Run, query: Windowed, filled: Filled) -> list[Row]:
    rows = [
        {n: wanted_of(v) for n, v in row.items()}
        for row in query.query.rows(filled.final)
        if all(row[name] is not None for name in run.sink.keys)
    ]
    return sorted(rows, key=repr)
