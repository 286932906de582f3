"""Secrets as environment variables: the last place, for containers and for trying things out."""

from __future__ import annotations

import os
import re

from dataflow_assets.secrets.refs import Absent, SecretKey, VariableRef

PREFIX = "DATAFLOW_SECRET"


def variable(key: SecretKey) -> str:
    """The variable that holds the value, like `DATAFLOW_SECRET__SHOP__PG__PASSWORD`.

    Two underscores lie between the names. What is not a letter or a digit is one underscore.
    """
    return "__".join((PREFIX, *map(spell, (key.namespace, key.name, key.key))))


def spell(part: str) -> str:
    return re.sub(r"[^A-Z0-9]+", "_", part.upper())


def namespace(name: str) -> str | None:
    """The namespace, as variables spell it, whose Secret the variable `name` holds; else None."""
    begin, _, rest = name.partition("__")
    return rest.partition("__")[0] if begin == PREFIX else None


def value(key: SecretKey) -> str | Absent:
    """The variable's value; an empty one is a value."""
    name = variable(key)
    text = os.environ.get(name)
    return Absent(f"the environment has no {name}") if text is None else text


def first(ref: VariableRef) -> str | Absent:
    """The value of the first of the reference's variables that is set; an empty one is a value."""
    text = next((os.environ[name] for name in ref.variables if name in os.environ), None)
    return (
        Absent(f"the environment has no {' and no '.join(ref.variables)}") if text is None else text
    )
