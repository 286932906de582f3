"""Hostile messages through every step: `make fuzz` sends a million, the suite a few thousand.

No step may raise anything but RejectedRecord, change what it was given, take long, or make what
JSON cannot hold; and of every message every step says what became of it. A failure names the
step, its config and the message; in the suite hypothesis makes it small.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.record import NotJson, Record, parse, text
from tests import ROOT
from tests.stress.fuzz_cases import Case, cases
from tests.stress.hostile import Message, Parts

LONGEST = 1.0  # seconds of one record in all steps, of the processor
CHUNK = 2_500  # messages for the same configs
CONFIGS = 3  # of every step, for each message
RESULT = ROOT / "docs/evidence/fuzz.md"
OUTCOMES = ("unchanged", "changed", "several", "filtered", "rejected")

PAGE = """# Fuzz

{date}, commit {head}, by `make fuzz`: {sent} hostile messages, each through {configs} configs
of every step, {rate:.0f} messages a second on {cores} cores; seeds {first} to {last}, each
for {chunk} of them. Zero crashes; no message took a second; none was changed in place; and of
every one each step says what became of it.

| step | unchanged | changed | several | filtered | rejected | all |
|---|---|---|---|---|---|---|
{lines}

The first line is the decoding of the message: rejected is JSON that cannot be kept exactly or is
nested too deeply, unchanged is a text that is not JSON, changed is what became a body. Rejected
messages never reach a step.
"""


Counts = Counter[tuple[str, str]]


class Crashed(AssertionError):
    """A step broke a promise."""


def send(message: Message, every: Sequence[Sequence[Case]], rng: random.Random) -> Counts:
    """What becomes of one message in every step, with some of its configs. Raises Crashed."""
    counts: Counts = Counter()
    try:
        record = Record(parse(message[0]), message[1])
    except RejectedRecord:
        counts["decode", "rejected"] = 1
        return counts
    run(record, [rng.choice(each) for each in every for _ in range(CONFIGS)], counts)
    return counts


def run(record: Record, chosen: Sequence[Case], counts: Counts) -> None:
    """Raises Crashed for the step that broke a promise."""
    begun, kept = time.thread_time(), dict(record.metadata)
    try:
        before = text(record.body)
    except RejectedRecord:  # as deep as can be read, and too deep to be written
        counts["decode", "rejected"] += 1
        return
    counts["decode", "unchanged" if isinstance(record.body, NotJson) else "changed"] += 1
    for case in chosen:
        try:
            counts[case.step, _outcome(record, case)] += 1
        except Exception as error:
            raise Crashed(f"{case.step} {dict(case.config)}: {type(error).__name__}") from error
    if time.thread_time() - begun > LONGEST:
        raise Crashed(f"took longer than {LONGEST} s: one of {_names(chosen)}")
    if text(record.body) != before or record.metadata != kept:
        raise Crashed(f"changed its record: one of {_names(chosen)}")


def _names(chosen: Sequence[Case]) -> list[str]:
    return [f"{case.step} {dict(case.config)}" for case in chosen]


def _outcome(record: Record, case: Case) -> str:
    """What became of the record; whatever came out must be writable as JSON."""
    try:
        found = case.apply(record)
    except RejectedRecord as error:
        return "rejected" if error.reason else "rejected for no reason"
    if found is None:
        return "filtered"
    if found is record:
        return "unchanged"
    children = found if isinstance(found, list) else [found]
    assert children
    try:
        for child in children[:3]:
            text(child.body)
    except RejectedRecord as error:
        if error.reason != "nested too deeply":  # as `hoistField` makes one level more
            raise Crashed(f"what came out is no JSON: {error.reason}") from None
        return "rejected"
    return "several" if isinstance(found, list) else "changed"


@dataclass(frozen=True)
class Chunk:
    """So many messages under one seed; the same again on every machine."""

    seed: int
    count: int


def chunk(given: Chunk) -> Counts:
    """What became of its messages."""
    counts: Counts = Counter()
    every, parts, rng = cases(given.seed), Parts(given.seed), random.Random(given.seed)
    for _ in range(given.count):
        message = parts.draw()
        try:
            counts.update(send(message, every, rng))
        except Crashed as error:
            raise Crashed(f"seed {given.seed}: {error}: message and metadata {message}") from error
    return counts


def fuzz(count: int, first: int, cores: int) -> Counts:
    """Sends so many messages, on so many cores; what became of them."""
    total: Counts = Counter()
    chunks = [Chunk(first + number, CHUNK) for number in range(-(-count // CHUNK))]
    with ProcessPoolExecutor(cores) as pool:
        for done, found in enumerate(pool.map(chunk, chunks), 1):
            total += found
            sys.stderr.write(f"\r{done} of {len(chunks)} chunks of {CHUNK} messages")
    sys.stderr.write("\n")
    return total


def commit() -> str:
    """Of which state of the code."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip()


def report(counts: Counts, given: argparse.Namespace, head: str, seconds: float) -> str:
    """The page about one run."""
    sent = sum(count for (step, _), count in counts.items() if step == "decode")
    names = dict.fromkeys(["decode", *(step for step, _ in sorted(counts))])
    rows = {name: [counts[name, outcome] for outcome in OUTCOMES] for name in names}
    lines = [f"| {name} | {' | '.join(map(str, [*row, sum(row)]))} |" for name, row in rows.items()]
    return PAGE.format(
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        head=head,
        last=given.seed + -(-sent // CHUNK) - 1,
        lines="\n".join(lines),
        sent=sent,
        first=given.seed,
        rate=sent / seconds,
        cores=given.cores,
        chunk=CHUNK,
        configs=CONFIGS,
    )


def main() -> None:
    """Runs, and writes the result down when nothing crashed."""
    parser = argparse.ArgumentParser(prog="python -m tests.stress.fuzz", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1, help="of the first chunk")
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    given = parser.parse_args()
    head, begun = commit(), time.monotonic()
    counts = fuzz(given.messages, given.seed, given.cores)
    page = report(counts, given, head, time.monotonic() - begun)
    sys.stdout.write(page)
    RESULT.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
