"""Hostile manifests: `make fuzz-manifests` checks a hundred thousand, the suite a few hundred.

Whatever a file of any of the five languages holds, `dataflow check` ends with findings, notes or
flows: no exception, and no finding that tells of one; no file is opened outside the folder of
manifests and that of secrets; none is slower than LONGEST. What loads is resolved as a run would do
it, without a server; the flows of NEIGHBOURS, one of each language, stay. A failure names its kind,
seed and text.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from dataflow_assets.connectors.postgresql import dsn
from dataflow_assets.connectors.postgresql.sink.sink import PostgresqlSink
from dataflow_assets.errors import DataflowError
from dataflow_assets.flow import Flow
from dataflow_assets.manifests.check import as_json, as_lines
from dataflow_assets.manifests.load import Loaded, load
from tests import ROOT
from tests.stress.hostile_kinds import KINDS, draw
from tests.stress.hostile_manifests import PLANTED, Text

LONGEST = 2.0  # seconds of the processor for one file
CHUNK = 500
RESULT = ROOT / "docs/evidence/fuzz-manifests.md"
UNEXPECTED = "a mistake of dataflow-assets"  # what a finding says that an exception has become
OUTCOMES = ("flows", "notes", "findings", "nothing")

PAGE = """# Fuzz of manifests

{date}, commit {head}, by `python -m tests.stress.fuzz_manifests --files {sent} --seed {first}`
(`make fuzz-manifests` takes 100000 from seed 1): {sent} hostile files, {rate:.0f} a second
with {cores} processes; seeds {first} to {last}, each for {chunk} of them. No exception; the flows
in the files beside it, one of each language, stayed; no file was opened outside the folders of
manifests and secrets; the slowest took {slowest:.2f} s of the processor, {longest:.0f} s are
allowed. {resolved} flows were resolved with their secrets, or refused that with a sentence.

| kind | {outcomes} | all |
|---|{dashes}---|
{lines}

A file counts once, for the worst that was said about it: findings before notes before flows.
"""

Counts = Counter[tuple[str, str]]
NEIGHBOURS = {
    "dataflow/flow.yaml": """apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata: {name: neighbour-dataflow}
spec:
  source: {type: kafka, config: {brokers: ['n:1'], topic: neighbour-in}}
  sink: {type: kafka, config: {brokers: ['n:1'], topic: neighbour-out}}
""",
    "sql/flow.sql": """
CREATE TABLE nin (id INT) WITH ('connector' = 'kafka', 'topic' = 'nin', 'format' = 'json',
  'properties.bootstrap.servers' = 'n:1');
CREATE TABLE nout (id INT) WITH ('connector' = 'kafka', 'topic' = 'nout', 'format' = 'json',
  'properties.bootstrap.servers' = 'n:1');
INSERT INTO nout SELECT id FROM nin;
""",
    "pipelines/flow.sql": """
CREATE INFERRED PIPELINE neighbour_pipeline AS LOAD DATA KAFKACONNECT 'kafka-connector' CONFIG '{
  "connector.class": "com.singlestore.kafka.connect.kinesis.KinesisSourceConnector",
  "kafka.topic": "n", "kinesis.stream": "n", "kinesis.region": "eu-central-1"}' FORMAT AVRO;
START PIPELINE neighbour_pipeline;
""",
    "pipelines/connections.yaml": """target: neighbours
targets:
  neighbours: {type: postgresql, config: {connectionString: 'postgresql://u@n/neighbours'}}
""",
    "justone/flow.properties": """name=neighbour-justone
connector.class=com.justone.kafka.sink.pg.json.PostgreSQLSinkConnector
topics=nj
db.host=n
db.database=n
db.username=n
db.password=n
db.schema=n
db.table=n
db.columns=id
db.json.parse=/@id
""",
    "justone/worker.properties": "bootstrap.servers=n:1\n",
    "tableflow/flow.yaml": """source_clusters:
  - {name: n, bootstrap_brokers: [{hostname: n, port: 1}]}
tables:
  - {source_cluster_name: n, source_topic: nt, source_format: json, schema_mode: inline,
     schema: {fields: [{name: a, type: string, id: 1}]}}
destination_bucket_url: s3://neighbour
""",
}
"""By the file in a folder of its own a flow of each language, beside the hostile file."""


class Crashed(AssertionError):
    """A file broke a promise."""


class Watch:
    """Notes which files are opened while it is on; Python tells every one."""

    def __init__(self) -> None:
        self.on = False
        self.opened: list[str] = []
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.on and event == "open" and isinstance(arguments[0], str | bytes):
            self.opened.append(os.fsdecode(arguments[0]))


@cache
def watch() -> Watch:
    """One for a process: a hook cannot be taken away again."""
    return Watch()


def stray(opened: list[str], folder: Path) -> list[str]:
    """Files outside the folder that are none of Python's own code."""
    code = [sys.prefix, sys.base_prefix, str(ROOT)]
    known = tuple(os.path.realpath(path) + os.sep for path in (str(folder), *code))
    return [path for path in opened if not os.path.realpath(path).startswith(known)]


@dataclass(frozen=True)
class Place:
    """A folder of manifests, one of secrets, and what must not be read beside them."""

    root: Path

    @property
    def inside(self) -> Path:
        """What may be read."""
        return self.root / "inside"

    def fill(self) -> None:
        """Secrets as Kubernetes mounts them, links that lead out, and planted files."""
        mount = self.inside / "secrets/default/pg"
        (mount / "..2026").mkdir(parents=True)
        (mount / "..2026/dsn").write_text("postgresql://u:p@h/d")
        (mount / "..data").symlink_to("..2026")
        (mount / "dsn").symlink_to("..data/dsn")
        (mount / "out").symlink_to("../../../../outside")
        (mount / "etc").symlink_to("/etc/hostname")
        (self.inside / "secrets/default/far").symlink_to("/etc")
        for name in ("outside", "inside/secrets/..outside"):
            (self.root / name).write_text(PLANTED)
        (self.inside / "flows/hostile").mkdir(parents=True)
        for name, text in NEIGHBOURS.items():
            file = self.inside / "flows" / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)

    def check(self, given: Text) -> tuple[str, int]:
        """The outcome, and how many flows were resolved. Raises Crashed."""
        file = self.inside / "flows/hostile" / given.name
        file.write_bytes(given.content)
        try:
            return self._checked(file)
        finally:
            file.unlink()

    def _checked(self, file: Path) -> tuple[str, int]:
        heard = watch()
        heard.opened.clear()
        heard.on = True
        try:
            every = load(self.inside / "flows")
            loaded = _of(file, every)
            said = "\n".join([*as_lines(loaded), repr(as_json(loaded)["hints"])])
            resolved = [_resolved(flow) for flow in loaded.flows]
        finally:
            heard.on = False
        if found := stray(heard.opened, self.inside):
            raise Crashed(f"opened {found[0]}")
        if PLANTED in said + "".join(resolved):
            raise Crashed("shows what is outside")
        if UNEXPECTED in said:
            raise Crashed(said)
        if lost := _folders(NEIGHBOURS) - _folders(flow.file for flow in every.flows):
            raise Crashed(f"the neighbours of {lost} are gone: {every.findings}")
        kinds = {"findings": loaded.findings, "notes": loaded.hints, "flows": loaded.flows}
        return next((kind for kind, some in kinds.items() if some), "nothing"), len(resolved)


def _folders(files: Iterable[str | Path]) -> set[str]:
    return {Path(file).parent.name for file in files}


def _of(file: Path, loaded: Loaded) -> Loaded:
    """What was said of one file."""
    findings, hints = (
        tuple(one for one in some if one.file == str(file))
        for some in (loaded.findings, loaded.hints)
    )
    flows = tuple(flow for flow in loaded.flows if flow.file == file)
    return Loaded(flows, findings, hints)


def _resolved(flow: Flow) -> str:
    """What a run would do first, as far as no server is needed; what was found, or said."""
    try:
        whole = flow.resolve()
        for branch in whole.branches:
            if isinstance(branch.sink, PostgresqlSink):
                dsn.conninfo(branch.sink.dsn(), "fuzz")
        shown = [
            whole.source.model_dump(),
            *(branch.sink.model_dump() for branch in whole.branches),
        ]
        return repr(shown)
    except DataflowError as error:
        return str(error)


@dataclass(frozen=True)
class Chunk:
    """So many files under one seed; the same again on every machine."""

    seed: int
    count: int


@dataclass(frozen=True)
class Done:
    """What became of a chunk."""

    counts: Counts
    resolved: int
    slowest: float


def chunk(given: Chunk) -> Done:
    """Checks its files. Raises Crashed with the seed and the text."""
    counts: Counts = Counter()
    resolved, slowest, rng = 0, 0.0, random.Random(given.seed)
    with tempfile.TemporaryDirectory() as root, patch.dict(os.environ) as environment:
        place = Place(Path(root))
        place.fill()
        environment["DATAFLOW_SECRETS"] = str(place.inside / "secrets")
        for _ in range(given.count):
            kind, text = draw(rng)
            begun = time.thread_time()
            try:
                outcome, flows = place.check(text)
            except BaseException as error:
                message = f"seed {given.seed}: {kind}: {type(error).__name__}: {error}: {text}"
                raise Crashed(message[:20_000]) from error
            taken = time.thread_time() - begun
            if taken > LONGEST:
                raise Crashed(f"seed {given.seed}: {kind}: {taken:.1f} s: {text}"[:20_000])
            counts[kind, outcome] += 1
            resolved, slowest = resolved + flows, max(slowest, taken)
    return Done(counts, resolved, slowest)


def fuzz(count: int, first: int, cores: int) -> Done:
    """Checks so many files, on so many cores."""
    chunks = [Chunk(first + number, CHUNK) for number in range(-(-count // CHUNK))]
    found: list[Done] = []
    with ProcessPoolExecutor(cores) as pool:
        for done in pool.map(chunk, chunks):
            found.append(done)
            sys.stderr.write(f"\r{len(found)} of {len(chunks)} chunks of {CHUNK} files")
    sys.stderr.write("\n")
    counts: Counts = sum((one.counts for one in found), Counter())
    return Done(counts, sum(one.resolved for one in found), max(one.slowest for one in found))


def commit() -> str:
    """Of which state of the code."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def report(done: Done, given: argparse.Namespace, head: str, seconds: float) -> str:
    """The page about one run."""
    sent = done.counts.total()
    rows = {kind: [done.counts[kind, outcome] for outcome in OUTCOMES] for kind in KINDS}
    lines = [f"| {kind} | {' | '.join(map(str, [*row, sum(row)]))} |" for kind, row in rows.items()]
    return PAGE.format(
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        head=head,
        sent=sent,
        rate=sent / seconds,
        cores=given.cores,
        first=given.seed,
        last=given.seed + -(-sent // CHUNK) - 1,
        chunk=CHUNK,
        slowest=done.slowest,
        longest=LONGEST,
        resolved=done.resolved,
        outcomes=" | ".join(OUTCOMES),
        dashes="---|" * len(OUTCOMES),
        lines="\n".join(lines),
    )


def main() -> None:
    """Runs, and writes the result down when nothing crashed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.stress.fuzz_manifests", description=__doc__
    )
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1, help="of the first chunk")
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    given = parser.parse_args()
    head, begun = commit(), time.monotonic()
    page = report(fuzz(given.files, given.seed, given.cores), given, head, time.monotonic() - begun)
    sys.stdout.write(page)
    RESULT.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
