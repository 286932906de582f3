"""Which keys a block may have, and which one was probably meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, get_args

from dataflow_assets.errors.likely_names import closest, did_you_mean_or, plain
from dataflow_assets.languages.common.documents import Path
from dataflow_assets.spec import Spec

CONNECTION_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_ALIASES = {
    "groupid": "consumerGroup",
    "group": "consumerGroup",
    "bootstrapservers": "brokers",
    "startfrom": "startingOffsets",
    "autooffsetreset": "startingOffsets",
    "initialoffset": "startingOffsets",
    "auth": "basicAuth",
    "dsn": "connectionString",
    "url": "connectionString",
    "primarykey": "conflictKey",
    "keycolumns": "conflictKey",
    "uniquekey": "conflictKey",
    "mergekey": "conflictKey",
    "writemode": "upsertMode",
    "writedisposition": "upsertMode",
    "cursorfield": "changeTrackingColumn",
    "incrementalcolumn": "changeTrackingColumn",
    "replicationkey": "changeTrackingColumn",
    "watermark": "changeTrackingColumn",
    "steps": "transformations",
    "transforms": "transformations",
    "pipeline": "transformations",
    "if": "when",
    "only": "when",
    "key": "keyField",
    "messagekey": "keyField",
    "keycolumn": "keyField",
    "predicate": "when",
    "when": "condition",
}
"""What other tools call a key that is called otherwise here."""
_OF_ERRORS = "errors (a sink for rejected records) and onRejected (fail, table or skip)"
_ELSEWHERE = {
    "topics": ("topic", "a flow reads one topic: write topic, and a manifest for each topic"),
    "sinks": ("sink", "a flow has one sink; other targets are routes of a router step"),
    "outputs": ("sink", "a flow has one sink; other targets are routes of a router step"),
    "sources": ("source", "a flow has one source: write a manifest for each source"),
    "inputs": ("source", "a flow has one source: write a manifest for each source"),
    "schedule": (
        "freshness",
        (
            "a flow runs when its source has new data, within freshness seconds; its job can be "
            "put on a schedule in Dagster"
        ),
    ),
    "cron": ("freshness", "a flow runs when its source has new data, within freshness seconds"),
    "deadletterqueue": ("onRejected", f"rejected records are a matter of {_OF_ERRORS}"),
    "dlq": ("onRejected", f"rejected records are a matter of {_OF_ERRORS}"),
    "onerror": ("onRejected", f"rejected records are a matter of {_OF_ERRORS}"),
    "errorhandling": ("onRejected", f"rejected records are a matter of {_OF_ERRORS}"),
    "catalogtype": ("catalogURI", "catalogs are asked by Iceberg's REST protocol at catalogURI"),
    "schema": ("table", "write table: schema.name"),
    "description": ("transformations", "write a comment, or an entry of metadata.annotations"),
}
"""What other tools have as a key: the key here that shows what block it is, and what to do."""
_INSIDE = {"host", "hostname", "port", "user", "username", "password", "database", "dbname"}
"""Keys of other tools that are parts of a connection string here."""
MOST_NAMES = 12
"""So many keys are listed; of more only those that are most like the unknown one."""


def suggest(word: str, allowed: Iterable[str]) -> str:
    """`did you mean x?`, or else what is allowed."""
    choices = list(allowed)
    return did_you_mean_or(word, choices, f"allowed: {_choices(word, choices)}")


def _choices(word: str, choices: list[str]) -> str:
    """All choices, or the likeliest of many: nobody reads thirty names."""
    if len(choices) <= MOST_NAMES:
        return ", ".join(choices) or "(nothing)"
    close = closest(word, choices, MOST_NAMES // 2)
    more = len(set(choices)) - len(close)
    return f"{', '.join(close)} and {more} more: `dataflow schema` lists all"


def unknown_key(path: Path, model: type[Spec], base: Path) -> str:
    """Returns what to say about a key that the block at the path's end does not have."""
    key = str(path[-1])
    models = sorted(models_at(path[:-1], model, base), key=str)
    keys = [name for spec in models for name in names(spec)]
    deeper = [name for spec in models for name in _inner(spec) if name.endswith(f".{key}")]
    deeper = [name for name in deeper if "SecretRef." not in name]
    alias = _ALIASES.get(plain(key))
    if alias in keys:
        return f"unknown key; did you mean {alias}?"
    block, advice = _ELSEWHERE.get(plain(key), ("", ""))
    if block in keys:
        return f"unknown key; {advice}"
    if key in _INSIDE and "connectionString" in keys:
        return "unknown key; it is a part of connectionString: scheme://user:password@host/database"
    if deeper and plain(key) not in map(plain, keys):
        return f"unknown key; did you mean {deeper[0]}?"
    return f"unknown key; {suggest(key, keys)}"


def models_at(path: Path, model: type[Spec], base: Path) -> set[type[Spec]]:
    """The models that a block of the document may be."""
    models = {model}
    for part in path[len(base) :]:
        models = models if isinstance(part, int) else set(_below(models, part))
    return models


def names(model: type[Spec]) -> list[str]:
    """A model's keys as manifests spell them."""
    return [str(info.alias or name) for name, info in model.model_fields.items()]


def _inner(model: type[Spec]) -> Iterator[str]:
    """Keys one block further down: the place where a key may have been meant to stand."""
    for name in names(model):
        yield from (f"{name}.{inner}" for spec in _below({model}, name) for inner in names(spec))


def _below(models: Iterable[type[Spec]], key: str) -> Iterator[type[Spec]]:
    for model in models:
        for name, info in model.model_fields.items():
            if key == (info.alias or name):
                yield from _specs(info.annotation)


def _specs(annotation: Any) -> Iterator[type[Spec]]:
    if isinstance(annotation, type) and issubclass(annotation, Spec):
        yield annotation
    for argument in get_args(annotation):
        yield from _specs(argument)
