"""Frames of users' assets: each value is written exactly and read back, or the frame is refused."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dataflow_assets.errors import DataflowError, PermanentError
from dataflow_assets.sdk.table_frames import FrameSink, TableFrames
from dataflow_assets.spark.errors import task_failure
from tests.flows import SYSTEMS
from tests.frames import local_frame
from tests.matrix.frame_types import PAIRS, Pair
from tests.matrix.typed_tables import SHAPES, Shape, make, plain, stored
from tests.matrix.types import TABLES
from tests.systems import Config, System


def frame_type(given: pa.DataType, shape: str) -> pa.DataType:
    """Of a column of frames in which such values stand."""
    return {
        "plain": given,
        "array": pa.list_(given),
        "struct": pa.struct([("a", given)]),
        "map": pa.map_(pa.string(), given),
    }[shape]


def shaped(value: Any, shape: str) -> Any:
    """A value of Python's for such a column."""
    return [("k", value)] if shape == "map" else SHAPES[shape].sent(value)


def frames_of(system: System, config: Config) -> TableFrames:
    """The table of the config."""
    from dataflow_assets import registry

    sink = registry.sinks()[system.type].model_validate(config)
    assert isinstance(sink, FrameSink)
    namespace = config.get("namespace") or config.get("schema")
    name = config["table"]
    if system.type == "postgresql":
        namespace, _, name = name.partition(".")
    return sink.frames(namespace, name)


def written(frames: TableFrames, rows: Sequence[Any], kinds: Any, session: Any) -> str | None:
    """Appends rows; why they were refused."""
    frame = local_frame(rows, pa.schema(kinds), session)
    try:
        frames.write(frame, "append", (), None)
    except PySparkException as error:
        found: DataflowError = task_failure(error)
    except DataflowError as error:
        found = error
    else:
        return None
    assert isinstance(found, PermanentError), found
    return str(found)


@dataclass(frozen=True)
class Tried:
    """A pair in a table with a column for each shape."""

    pair: Pair
    system: System
    config: Config
    session: Any

    @property
    def into(self) -> str:
        """The type of the values."""
        return self.pair.into[self.system.type]

    @property
    def shapes(self) -> dict[str, Shape]:
        """Those that the system has."""
        return {name: one for name, one in SHAPES.items() if self.system.type in one.types}

    def not_refused(self, number: int) -> Iterator[tuple[Any, ...]]:
        """Values that do not fit, plain and the first one in one more shape."""
        frames, names = frames_of(self.system, self.config), [*self.shapes]
        tried = [("plain", value) for value in self.pair.unfit]
        tried += [(names[number % len(names)], value) for value in self.pair.unfit[:1]]
        for name, value in tried:
            column = f"c{names.index(name)}"
            kinds = {"id": pa.int64(), column: frame_type(self.pair.given, name)}
            row = {"id": 0, column: shaped(value, name)}
            reason = written(frames, [row], kinds, self.session)
            if f"column {column}" not in (reason or ""):
                yield name, value, "is not refused, or by another column", reason

    def changed(self) -> Iterator[tuple[Any, ...]]:
        """Values that fit, and null: in all shapes at once, then read again."""
        frames, names = frames_of(self.system, self.config), [*self.shapes]
        fits = [*self.pair.fits, (None, None)]
        kinds = {f"c{at}": frame_type(self.pair.given, name) for at, name in enumerate(names)}
        rows = [
            {"id": n, **{f"c{at}": shaped(value, name) for at, name in enumerate(names)}}
            for n, (value, _) in enumerate(fits)
        ]
        if reason := written(frames, rows, {"id": pa.int64(), **kinds}, self.session):
            yield "all", [value for value, _ in fits], "is refused", reason
            return
        columns = [(self.into, shape) for shape in self.shapes.values()]
        texts = stored(self.system, self.config, columns)
        with ExitStack() as held:
            read = frames.read(self.session, None, held, None).toArrow().to_pylist()
        back = {row.pop("id"): row for row in read}
        for (n, (value, text)), name in product(enumerate(fits), names):
            at = names.index(name)
            again = _inside(back[n][f"c{at}"], name, self.shapes[name])
            if pa.types.is_binary(self.pair.given) and name == "map" and isinstance(again, str):
                again = b64decode(again)  # of a map of Trino, which is JSON
            found = texts[n][at], again if again is None else plain(self.into, again)
            if found != (text, text):
                yield name, value, *found


def _inside(value: Any, name: str, shape: Shape) -> Any:
    """Of arrays of PostgreSQL and of maps of ClickHouse and Trino a frame has the text."""
    if isinstance(value, str) and name == "array":
        text = value[1:-1]
        return json.loads(text, strict=False) if text[:1] == '"' else {"NULL": None}.get(text, text)
    if isinstance(value, str) and name == "map":
        return shape.inside([*json.loads(value, parse_int=str, parse_float=str).items()])
    return shape.inside(value)


@pytest.mark.parametrize("system", TABLES)
def test_a_frame_is_stored_exactly_and_read_back_or_refused(
    system: str, request: pytest.FixtureRequest, engine: SparkSession
) -> None:
    place = SYSTEMS[system](request)
    wrong: list[Any] = []
    for number, pair in enumerate(PAIRS):
        if system in pair.into:
            tried = Tried(pair, place, place.at(f"t{number}", {}), engine)
            make(place, tried.config, [(tried.into, shape) for shape in tried.shapes.values()])
            found = [*tried.not_refused(number), *(tried.changed() if pair.fits else ())]
            wrong += [(f"{pair.given} -> {tried.into}", *one) for one in found]
    assert not wrong, "\n".join(map(str, wrong))
