"""Which keys a block may have, and which one was probably meant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any, get_args

from dataflow_assets.manifests.dialects.documents import Path
from dataflow_assets.spec import Spec

_ALIASES = {
    "groupid": "consumerGroup",
    "group": "consumerGroup",
    "bootstrapservers": "brokers",
    "dsn": "connectionString",
    "url": "connectionString",
    "primarykey": "conflictKey",
    "keycolumns": "conflictKey",
}
"""What other tools call a key that is called otherwise here."""
_LONGEST_WORD = 100  # to compare longer ones takes long, and nobody has misspelt them
_INSIDE = {"host", "hostname", "port", "user", "username", "password", "database", "dbname"}
"""Keys of other tools that are parts of a connection string here."""


def suggest(word: str, allowed: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The allowed name that was probably meant."""
    if len(word) > _LONGEST_WORD:
        return None
    names = {_plain(name): name for name in allowed}
    close = get_close_matches(_plain(word), names, n=1, cutoff=cutoff)
    return names[close[0]] if close else None


def meant(word: str, allowed: Iterable[str]) -> str:
    """`did you mean x?`, or else what is allowed."""
    choices = list(allowed)
    found = suggest(word, choices)
    return f"did you mean {found}?" if found else f"allowed: {', '.join(choices) or '(nothing)'}"


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").casefold()


def unknown(path: Path, model: type[Spec], base: Path) -> str:
    """What to say about a key that the block at the path's end does not have."""
    key = str(path[-1])
    models = sorted(models_at(path[:-1], model, base), key=str)
    known = [name for spec in models for name in names(spec)]
    deeper = [name for spec in models for name in _inner(spec) if name.endswith(f".{key}")]
    alias = _ALIASES.get(_plain(key))
    if alias in known:
        return f"unknown key; did you mean {alias}?"
    if key in _INSIDE and "connectionString" in known:
        return "unknown key; it is a part of connectionString: scheme://user:password@host/database"
    if key == "schema" and "table" in known:
        return "unknown key; write table: schema.name"
    if deeper and _plain(key) not in map(_plain, known):
        return f"unknown key; did you mean {deeper[0]}?"
    return f"unknown key; {meant(key, known)}"


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
