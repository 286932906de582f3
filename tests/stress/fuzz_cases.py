"""The configs that `tests.stress.fuzz` tries: those of the examples, and some made by chance."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from dataflow_assets import registry
from dataflow_assets.records.step import Apply, Context, Step

CONTEXT = Context(datetime(2026, 7, 20, 10, tzinfo=UTC))

_KEYS = ("a", "b", "u", "id", "xs", "0", "1", "-1", ":0", "['']", "a\\.b", "payload", "n", "t")
_READ = ("#", "*", "a*", "?", "[*]", "#(a==1)", '#(a%"*1*")#', "#(id>0)#", "#(>1)")
_CHANGE = ("@this", "@reverse", "@keys", "@values", "@flatten", "@join", "@tostr", "@fromstr")
_CONDITIONS = ("$.{0}", "$.{0} == '1'", "!$.{0} != x && $.{1} < 5", "$.{0} in [1, 'x']")
_MORE = ("$.{0} >= 1e3 || metadata.topic == '0'", "metadata.id", "metadata.timestamp == 'x'")


@dataclass(frozen=True)
class Case:
    """A step with one config, ready to run."""

    step: str
    config: Mapping[str, Any]
    apply: Apply


def cases(number: int) -> list[list[Case]]:
    """Of every step its configs: those of its examples, and some made by this number."""
    rng = random.Random(number)
    return [list(_of(step, rng)) for step in registry.steps().values()]


def _of(step: type[Step], rng: random.Random) -> Iterator[Case]:
    made = [_made(step.type, rng) for _ in range(6)]
    for config in [*(dict(example.config) for example in step.examples), *filter(None, made)]:
        try:
            yield Case(step.type, config, step.model_validate(config).compile(CONTEXT))
        except ValidationError:
            continue  # a path that cannot be written, or two that contradict


def _path(rng: random.Random, *, write: bool) -> str:
    parts = _KEYS if write else _KEYS + _READ + _CHANGE
    return ".".join(rng.choice(parts) for _ in range(rng.choice((1, 1, 2, 2, 3, 4))))


def _made(step: str, rng: random.Random) -> dict[str, Any] | None:
    """A config with paths of chance; None for a step that has no paths."""
    write = [_path(rng, write=True) for _ in range(3)]
    read = [_path(rng, write=False) for _ in range(3)]
    condition = rng.choice(_CONDITIONS + _MORE).format(*read)
    casts = [rng.choice(("string", "int64", "float64", "bool", "null")) for _ in write]
    sink = {"type": "a", "config": {"x": 1}}
    made: dict[str, dict[str, Any]] = {
        "cast": {"spec": dict(zip(write, casts, strict=True)), "nullable": rng.random() < 0.5},
        "dedupe": {"key": [read[0], "metadata.id"][: rng.choice((1, 2))]},
        "extractField": {"field": read[0]},
        "filter": {"condition": condition},
        "flatten": {"field": write[0]},
        "hash": {"fields": read, "target": write[0]} if rng.random() < 0.5 else {"fields": write},
        "headersToPayload": {"mappings": [f"id:{write[0]}", f"X-Id:{write[1]}"]},
        "hoistField": {"field": rng.choice(("🙂", "a b", "$", "0"))},
        "insertField": {
            "fields": {
                write[0]: "${metadata.id}",
                write[1]: f"x${{$.{read[0]}}}",
                write[2]: "${now}",
            },
            "interpolate": rng.random() < 0.7,
        },
        "jsonParse": {"fields": write, "onError": rng.choice(("keep", "reject"))},
        "jsonString": {"fields": write},
        "mask": {"fields": write, "keepLength": rng.random() < 0.7},
        "remove": {"fields": write},
        "replaceField": {
            rng.choice(("include", "exclude")): write[:2],
            "renames": {write[1]: write[2]},
        },
        "router": {"routes": [{"condition": condition, "sink": sink}]},
        "select": {"fields": read},
        "timestamp": {"fieldName": write[0]},
        "timezone": {"timezone": "Asia/Kolkata", "fields": write, "sourceTimezone": "-12:00"},
    }
    return made.get(step)
