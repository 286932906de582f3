"""Random queries with groups over random changes of rows, of Debezium, Canal and Maxwell.

The result is that of the query over the rows that are left, whatever is read at once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import strategies as st

from dataflow_assets.languages.sql.state import reading
from dataflow_assets.languages.sql.state.source import ViewSource
from dataflow_assets.manifests.load import load
from dataflow_assets.testing import choose
from tests.languages.sql.state import model
from tests.languages.sql.state.model import Query, Row
from tests.languages.sql.state.model_top import AT, Top, tops
from tests.languages.sql.state.test_model import (
    BAD,
    LOG,
    Run,
    Sink,
    _checked,
    _json,
    _value,
    _wanted,
    limits,
    log_source,
)

FORMATS = ("debezium-json", "canal-json", "maxwell-json")


def loaded(folder: Path, query: Query | Top, kind: str, *, keyed: bool) -> ViewSource:
    """The query's file as a flow."""
    options = "'topic' = '{}', 'properties.bootstrap.servers' = 'k:9092'"
    upsert = "'connector' = 'upsert-kafka', 'key.format' = 'json', 'value.format' = 'json'"
    key = ", PRIMARY KEY (k) NOT ENFORCED" if keyed else ""
    columns = ", ".join(f"{name} {type_}" for name, type_ in query.columns)
    names = ", ".join(name for name, _ in query.columns if name.startswith("x"))
    file = folder / "one.sql"
    file.write_text(
        f"CREATE TABLE s ({model.COLUMNS}{key}) WITH ('connector' = 'kafka', "
        f"'format' = '{kind}', {options.format('s')});\n"
        f"CREATE TABLE o ({columns}, PRIMARY KEY ({names}) NOT ENFORCED) WITH "
        f"({upsert}, {options.format('o')});\nINSERT INTO o {query.text()};\n"
    )
    source = choose(load(file), None).source
    assert isinstance(source, ViewSource)
    return source


@dataclass
class Table:
    """Rows by their keys, and the messages of their changes, each key in one partition."""

    kind: str
    keyed: bool
    rows: dict[int, Row] = field(default_factory=dict)
    bad: list[tuple[int, int]] = field(default_factory=list)

    def change(self, random: Random) -> None:
        """One message, of one row, or for Canal of several."""
        partition = random.randint(0, 1)
        if random.random() < 0.05:
            self.bad.append((partition, len(LOG[str(partition)])))
            LOG[str(partition)].append((None, BAD))
            return
        keys = list(range(partition, 8, 2))
        here = [key for key in keys if key in self.rows]
        free = [key for key in keys if key not in self.rows]
        wanted = random.choice("cud")
        pairs: list[tuple[Any, Any]]
        if wanted == "c" or not here:
            some = self._some(random, free)
            pairs = [(None, {"k": key, **model.row(random)}) for key in some]
        elif wanted == "d":
            pairs = [(self.rows[key], None) for key in self._some(random, here)]
        else:
            pairs = [
                (self.rows[key], self._updated(random, key)) for key in self._some(random, here)
            ]
            if free and random.random() < 0.3:
                old, new = pairs[0]
                pairs[0] = (old, {**new, "k": random.choice(free)})
        if pairs:
            self._send(partition, pairs, random)

    def _some(self, random: Random, keys: Sequence[int]) -> list[int]:
        most = 3 if self.kind == "canal-json" else 1
        return random.sample(keys, min(len(keys), random.randint(1, most)))

    def _updated(self, random: Random, key: int) -> Row:
        """All columns, or one of them."""
        new = model.row(random)
        one = random.choice(list(new))
        return {"k": key, **new} if random.random() < 0.5 else {**self.rows[key], one: new[one]}

    def _send(self, partition: int, pairs: Sequence[tuple[Any, Any]], random: Random) -> None:
        """Without a key a message may be in any partition."""
        partition = partition if self.keyed else random.randint(0, 1)
        for old, new in pairs:
            if old is not None:
                del self.rows[old["k"]]
            if new is not None:
                self.rows[new["k"]] = new
        texts = [(_text(old), _text(new)) for old, new in pairs]
        if self.kind == "debezium-json":
            message = self._debezium(*texts[0], random)
        else:
            message = _of_canal(texts) if self.kind == "canal-json" else _of_maxwell(*texts[0])
        log = LOG[str(partition)]
        log.append((None, json.dumps(message).encode()))
        if self.kind == "debezium-json" and texts[0][1] is None:
            log.append((None, None))

    def _debezium(self, old: Any, new: Any, random: Random) -> Any:
        """Without what it does not need of the row before, and with a schema, every other time."""
        op = "d" if new is None else "u" if old is not None else random.choice("cr")
        if self.keyed and op == "d" and random.random() < 0.5:
            old = {"k": old["k"]}
        if self.keyed and op == "u" and old["k"] == new["k"] and random.random() < 0.5:
            old = None
        event = {"before": old, "after": new, "op": op}
        return event if random.random() < 0.5 else {"schema": {}, "payload": event}


def _text(row: Row | None) -> Any:
    return None if row is None else json.loads(_json(row))


def _of_canal(pairs: Sequence[tuple[Any, Any]]) -> Any:
    old, new = zip(*pairs, strict=True)
    if new[0] is None:
        return {"type": "DELETE", "data": old, "old": None}
    if old[0] is None:
        return {"type": "INSERT", "data": new, "old": None}
    return {"type": "UPDATE", "data": new, "old": [_changed(*pair) for pair in pairs]}


def _of_maxwell(old: Any, new: Any) -> Any:
    if new is None:
        return {"type": "delete", "data": old}
    if old is None:
        return {"type": "insert", "data": new}
    return {"type": "update", "data": new, "old": _changed(old, new)}


def _changed(old: Any, new: Any) -> Any:
    return {name: value for name, value in old.items() if value != new[name]}


@_checked(20, st.one_of(model.queries(), tops()))
def test_some_queries_over_some_changes(
    folder: Path, keyed: bool, query: Query | Top, random: Random
) -> None:
    check(folder, query, random, keyed=keyed)


@pytest.mark.full
@pytest.mark.timeout(3600)
@_checked(600, st.one_of(model.queries(), tops()))
def test_any_query_over_any_changes(
    folder: Path, keyed: bool, query: Query | Top, random: Random
) -> None:
    check(folder, query, random, keyed=keyed)


def check(folder: Path, query: Query | Top, random: Random, *, keyed: bool) -> None:
    """The result of the product is that of the model."""
    if isinstance(query, Query):
        query = query.of_one_table()
    else:  # no two rows are equal
        query = replace(query.of(keyed=True), key=query.of(keyed=keyed).key)
    table = Table(random.choice(FORMATS), keyed)
    source = loaded(folder, query, table.kind, keyed=keyed)
    messages = log_source(source.source)
    run = Run(source, messages, Sink([name for name, _ in query.columns if name.startswith("x")]))
    LOG.clear()
    LOG.update({"0": [], "1": []})
    for last in [False] * random.randint(1, 4) + [True]:
        for _ in range(random.randint(5, 25)):
            table.change(random)
        before = run.manifest.offsets if run.manifest else dict.fromkeys(LOG, 0)
        ends = {p: len(log) for p, log in LOG.items()}
        upto = ends if last else {p: random.randint(before[p], end) for p, end in ends.items()}
        with patch.object(reading, "TOGETHER", random.choice([1, 3, 4_096])):
            run.span(upto, limits(random), small=random.random() < 0.5)
    assert sorted(run.sink.refused) == sorted(table.bad)
    kinds = dict(query.columns)
    found = [{n: _value(v, kinds[n]) for n, v in row.items()} for row in run.sink.rows.values()]
    wanted = [
        {n: _wanted(v) for n, v in row.items()}
        for row in query.rows([{**row, AT: ()} for row in table.rows.values()])
        if all(row[name] is not None for name in run.sink.keys)
    ]
    assert sorted(found, key=repr) == sorted(wanted, key=repr)
