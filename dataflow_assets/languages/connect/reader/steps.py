"""Steps as this language makes them: by the name and the settings of a DataFlow manifest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dataflow_assets import registry
from dataflow_assets.records.chain import Transformation
from dataflow_assets.records.conditions.condition import Condition

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_ $-]*")
NO_DELETES = "!metadata.operation == 'delete'"
"""Holds for every record but one that deletes, for null messages too."""


def step(kind: str, when: str = "", **config: Any) -> Transformation:
    """A step of a manifest. Raises ValueError for settings that it does not take."""
    built = registry.steps()[kind].model_validate(config)
    return Transformation(built, Condition.parse(when) if when else None)


def insert(fields: Mapping[str, str], when: str = "") -> Transformation:
    """Writes values, in which `${$.path}` is another field, into fields."""
    return step("insertField", when, fields=dict(fields), interpolate=True)


def field(name: str) -> str:
    """A field's name as a path. Raises ValueError where paths give one of its characters a meaning.

    Kafka Connect takes names as they are.
    """
    if not _PLAIN.fullmatch(name):
        raise ValueError(
            "names a field with a character besides letters, digits, `_`, `-`, `$` and spaces, or "
            "with a digit first: write a DataFlow manifest, whose paths can quote it"
        )
    return name
