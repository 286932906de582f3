"""Type x condition x shape x sink: each value is stored exactly, or its record is rejected."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dataflow_assets.connectors.memory import Store
from dataflow_assets.connectors.trino import types
from dataflow_assets.connectors.trino.encode import lines
from dataflow_assets.formats.json import JsonDecoder
from dataflow_assets.manifests.load import load
from dataflow_assets.testing import choose
from tests.flows import SYSTEMS, manifest, messages
from tests.matrix.test_matrix import run
from tests.matrix.typed_tables import SHAPES, make, stored
from tests.matrix.types import KINDS, REJECTED, TABLES, TRINO, Case
from tests.systems import Config


@dataclass(frozen=True)
class Cell:
    """One value in one column of a record that has no other."""

    column: int
    case: Case
    sent: dict[str, Any]


def cells(system: str, shape: str) -> list[Cell]:
    """Of a system and a shape, in the order of the table."""
    one, kinds = SHAPES[shape], [kind for kind in KINDS if system in kind.spelled]
    empty = {} if one.missing is None else {f"c{at}": one.missing for at in range(len(kinds))}
    found = []
    for at, kind in enumerate(kinds):
        cases = (*kind.cases, Case("null", None, None))
        found += [Cell(at, case, empty | {f"c{at}": one.sent(case.sent)}) for case in cases]
        found.append(Cell(at, Case("missing", None, None), empty))
    return found


def stored_of(
    store: Store, folder: Path, sink: tuple[str, Config], records: Sequence[Any], spark: Any
) -> dict[int, str]:
    """Runs a flow over the records; by offset why one was rejected."""
    store.produce("t", 0, [json.dumps(record).encode() for record in records])
    errors = {"type": "memory-slice", "config": {"store": store.name, "table": "errors"}}
    path = manifest(folder, messages(store), sink, 1000, errors=errors, maxRejectedPercent=100)
    run(choose(load(path), None), spark)
    bodies = [json.loads(body) for (body,) in store.query("select body from errors")]
    return {one["original_message"]["id"]: one["error"]["message"] for one in bodies}


@pytest.mark.parametrize(
    ("system", "shape"),
    [(system, name) for system in TABLES for name, one in SHAPES.items() if system in one.types],
)
def test_a_value_is_stored_exactly_or_its_record_is_rejected(
    system: str,
    shape: str,
    request: pytest.FixtureRequest,
    store: Store,
    engine: SparkSession,
    tmp_path: Path,
) -> None:
    sink = SYSTEMS[system](request)
    config = sink.at("sink", {})
    kinds = [kind.spelled[system] for kind in KINDS if system in kind.spelled]
    columns = [(kind, SHAPES[shape]) for kind in kinds]
    make(sink, config, columns)
    tried = cells(system, shape)
    records = [{"id": at, **cell.sent} for at, cell in enumerate(tried)]
    reasons = stored_of(store, tmp_path, (system, config), records, engine)
    rows = stored(sink, config, columns)
    assert sorted([*rows, *reasons]) == [*range(len(tried))]
    wrong = []
    for at, cell in enumerate(tried):
        found = rows[at][cell.column] if at in rows else REJECTED
        if found != cell.case.expected(system, shape):
            wrong.append((kinds[cell.column], cell.case, found, reasons.get(at)))
    assert not wrong, "\n".join(map(str, wrong[:20]))


@pytest.mark.parametrize("shape", SHAPES)
def test_what_trino_cannot_hold_is_rejected_before_a_statement(shape: str) -> None:
    """A cast of Trino's would round, or end the statement for all of its rows."""
    spelled = [kind.spelled[TRINO] for kind in KINDS if TRINO in kind.spelled]
    fields = [
        types.sink_field(
            f"c{at}", SHAPES[shape].types[TRINO].format(kind), nullable=True, comment=""
        )
        for at, kind in enumerate(spelled)
    ]
    tried = cells(TRINO, shape)
    bodies = pa.array([json.dumps(cell.sent).encode() for cell in tried], pa.binary())
    found = JsonDecoder(pa.schema(fields)).decode(bodies, pa.array(range(len(tried)), pa.int64()))
    expected = [cell.case.expected(TRINO, shape) for cell in tried]
    assert [one.offset for one in found.rejected] == [
        at for at, text in enumerate(expected) if text == REJECTED
    ]
    assert len(lines(found.rows, [field.name for field in fields])) == found.rows.num_rows


SCHEMALESS = ("files", "kafka", "postgresql")
"""Sinks of JSON, and the table whose objects are columns of JSON."""
EVERY = {json.dumps(case.sent): case.sent for kind in KINDS for case in kind.cases}


@pytest.mark.parametrize("system", SCHEMALESS)
def test_json_is_stored_as_it_was_sent(
    system: str,
    request: pytest.FixtureRequest,
    store: Store,
    engine: SparkSession,
    tmp_path: Path,
) -> None:
    sink = SYSTEMS[system](request)
    config = sink.at("sink", {})
    table = system == "postgresql"
    if table:
        make(sink, config, [("jsonb", SHAPES["plain"])] * len(SHAPES))
    records = [
        {"id": at, **{f"c{n}": shape.sent(value) for n, shape in enumerate(SHAPES.values())}}
        for at, value in enumerate(EVERY.values())
        if not (table and "\0" in str(value))  # which no text of PostgreSQL holds
    ]
    assert stored_of(store, tmp_path, (system, config), records, engine) == {}
    found = sorted(map(_exact, sink.rows(config)), key=lambda row: int(row["id"]))
    assert found == list(map(_exact, records))


def _exact(row: Any) -> Any:
    """With every digit."""
    return json.loads(json.dumps(row, default=str), parse_float=Decimal, parse_int=Decimal)
