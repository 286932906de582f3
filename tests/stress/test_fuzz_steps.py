"""Hostile messages through every step; `make fuzz` sends a million of them."""

from __future__ import annotations

import random
import time
from collections import Counter
from contextlib import suppress
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from dataflow_assets import registry
from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.record import MISSING, NotJson, Record, encode, parse
from dataflow_assets.records.step import Apply
from tests.examples import examples
from tests.stress import fuzz
from tests.stress.fuzz_cases import Case, cases
from tests.stress.hostile import Message, Parts

SEEDS = [900_001, pytest.param(900_002, marks=pytest.mark.full)]
MESSAGES = 1_000
HEALTH = list(HealthCheck)


@pytest.mark.parametrize("number", SEEDS)
def test_every_step_accounts_for_every_hostile_message(number: int) -> None:
    counts: fuzz.Counts = Counter()
    every = cases(number)

    @seed(number)
    @settings(max_examples=MESSAGES, deadline=None, database=None, suppress_health_check=HEALTH)
    @given(Parts(number).strategy(), st.integers(0, 2**20))
    def through_every_step(message: Message, turn: int) -> None:
        counts.update(fuzz.send(message, every, random.Random(turn)))

    through_every_step()
    _check(counts, MESSAGES)


def test_the_many_messages_of_make_fuzz_are_such_messages() -> None:
    _check(fuzz.chunk(fuzz.Chunk(900_000, MESSAGES)), MESSAGES)


def _check(counts: fuzz.Counts, sent: int) -> None:
    sums: Counter[str] = Counter()
    for (step, _), count in counts.items():
        sums[step] += count
    assert sums.pop("decode") == sent
    assert set(sums) == set(registry.steps())
    assert set(sums.values()) == {fuzz.CONFIGS * (sent - counts["decode", "rejected"])}


@settings(derandomize=True, max_examples=examples(1_000), deadline=None, database=None)
@given(st.one_of(Parts(0).strategy().map(itemgetter(0)), st.binary(), st.text().map(str.encode)))
def test_raw_bytes_become_a_body_or_a_rejection(raw: bytes | None) -> None:
    begun = time.thread_time()
    with suppress(RejectedRecord):
        body = parse(raw)
        assert isinstance(body, NotJson) or parse(encode(body)) == body
    assert time.thread_time() - begun < fuzz.LONGEST


def _raises(record: Record) -> Record:
    raise KeyError("a")


def _changes(record: Record) -> Record:
    record.body["b"] = 1
    return record


def _writes_nonsense(record: Record) -> Record:
    return Record({"a": MISSING}, record.metadata)


def _dawdles(record: Record) -> Record:
    end = time.thread_time() + 1.1 * fuzz.LONGEST
    while time.thread_time() < end:
        pass
    return record


@pytest.mark.parametrize(
    ("apply", "says"),
    [
        (_raises, "KeyError"),
        (_changes, "changed its record"),
        (_writes_nonsense, "TypeError"),
        (_dawdles, "took longer"),
    ],
)
def test_a_broken_promise_is_noticed(apply: Apply, says: str) -> None:
    config: dict[str, Any] = {"planted": 1}
    with pytest.raises(fuzz.Crashed, match=f"planted.*{says}|{says}.*planted"):
        fuzz.run(Record({"a": 1}, {}), [Case("planted", config, apply)], Counter())


def test_of_every_step_several_configs_are_tried() -> None:
    for each in cases(1):
        assert len({str(case.config) for case in each}) > 1, each[0].step
