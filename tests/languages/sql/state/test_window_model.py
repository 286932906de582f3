"""Random queries over windows, and random logs, without servers: the result is the model's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from dataflow_assets.languages.sql.engine.windows import at_front
from dataflow_assets.languages.sql.state.files import StateFiles
from dataflow_assets.languages.sql.state.hops import hops
from dataflow_assets.languages.sql.state.source import ViewSource
from dataflow_assets.languages.sql.state.tables import bucket_rows
from dataflow_assets.languages.sql.state.tasks import load as load_rows
from dataflow_assets.manifests.load import load
from dataflow_assets.testing import choose
from tests.languages.sql.state import model, model_windows
from tests.languages.sql.state.model import Row
from tests.languages.sql.state.model_windows import Filled, Record, Windowed, windowed
from tests.languages.sql.state.test_model import BAD, LOG, Run, Sink, limits, log_source
from tests.languages.sql.state.test_model import _json as in_json
from tests.languages.sql.state.test_model import _value as value_of
from tests.languages.sql.state.test_model import _wanted as wanted_of

FLOW = "default/o.s"
_BROKER = "'properties.bootstrap.servers' = 'k:9092'"


def _loaded(folder: Path, query: Windowed, *, keyed: bool) -> ViewSource:
    """The query's file as a flow."""
    columns = ", ".join(f"{name} {kind}" for name, kind in query.query.columns)
    names = ", ".join(name for name, _ in query.query.columns if name.startswith("x"))
    key = ", PRIMARY KEY (k) NOT ENFORCED" if keyed else ""
    formats = (
        "'upsert-kafka', 'key.format' = 'json', 'value.format' = 'json'"
        if keyed
        else "'kafka', 'format' = 'json'"
    )
    file = folder / "one.sql"
    file.write_text(
        f"CREATE TABLE s ({model.COLUMNS}, WATERMARK FOR t AS t - INTERVAL '{query.delay}' SECOND"
        f"{key}) WITH ('topic' = 's', {_BROKER}, 'connector' = {formats});\n"
        f"CREATE TABLE o ({columns}, PRIMARY KEY ({names}) NOT ENFORCED) WITH ("
        f"'connector' = 'upsert-kafka', 'topic' = 'o', {_BROKER}, 'key.format' = 'json', "
        f"'value.format' = 'json');\nINSERT INTO o {query.text()};\n"
    )
    source = choose(load(file), None).source
    assert isinstance(source, ViewSource)
    return source


def _checked(examples: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return lambda test: settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )(given(st.booleans(), windowed(), st.randoms(use_true_random=True))(test))


@_checked(12)
def test_some_queries_over_windows(
    folder: Path, keyed: bool, query: Windowed, random: Random
) -> None:
    check(folder, query, random, keyed=keyed)


@pytest.mark.full
@pytest.mark.timeout(3600)
@_checked(500)
def test_any_query_over_windows(folder: Path, keyed: bool, query: Windowed, random: Random) -> None:
    check(folder, query, random, keyed=keyed)


def check(folder: Path, query: Windowed, random: Random, *, keyed: bool) -> None:
    """Whatever is read at once and in which way: final rows, rows that were late, and the state."""
    source = _loaded(folder, query, keyed=keyed)
    messages = log_source(source.source)
    keys = [name for name, _ in query.query.columns if name.startswith("x")]
    run, filled, number = Run(source, messages, Sink(keys)), Filled(query, keyed), 0
    bad: list[tuple[int, int]] = []
    LOG.clear()
    LOG.update({"0": [], "1": []})
    for _ in range(random.randint(1, 5)):
        span: dict[str, list[Record]] = {"0": [], "1": []}
        for _ in range(random.randint(0, 25)):
            number += 1
            _append(random, number, span, filled, bad)
        run.span({p: len(log) for p, log in LOG.items()}, limits(random), small=_coin(random))
        filled.take(span)
    assert run.manifest is not None
    assert run.manifest.late == filled.late
    assert sorted(run.sink.refused) == sorted(bad)
    assert _found(run, query) == _wanted(run, query, filled)
    _check_kept(run)


def _check_kept(run: Run) -> None:
    """Nothing is kept of windows that are final."""
    manifest, view = run.manifest, run.source.view
    assert manifest is not None
    reached = manifest.watermarks.reached
    files = StateFiles(run.source.location, FLOW)
    for hop in hops(view):
        if hop.kind == "rows" or view.stages[hop.stage].window is None:
            continue
        table = manifest.tables[hop.table]
        for bucket in range(len(table.buckets)):
            rows = bucket_rows(table, bucket, len(table.buckets), lambda one: load_rows(files, one))
            times = [at_front(key) for key in rows["k"].to_pylist()]
            assert reached is None or all(at > reached + 1 for at in times)
            assert table.first is None or all(at >= table.first for at in times)
            assert table.first is not None or not times


def _coin(random: Random) -> bool:
    return random.random() < 0.5


def _append(
    random: Random,
    number: int,
    span: dict[str, list[Record]],
    filled: Filled,
    bad: list[tuple[int, int]],
) -> None:
    """A message into the log; a row without a time, and one that cannot be read, is rejected."""
    key = random.randint(0, 9)
    partition = str(key % 2)
    log, sent = LOG[partition], b'{"k":%d}' % key if filled.keyed else None
    if random.random() < 0.05:
        bad.append((int(partition), len(log)))
        log.append((sent, BAD))
        return
    gone = filled.keyed and random.random() < 0.1
    row = None if gone else {"k": key, **model_windows.row(random, number)}
    if row is not None and filled.rejects(row):
        bad.append((int(partition), len(log)))
    log.append((sent, None if row is None else in_json(row)))
    span[partition].append((key, row))


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
