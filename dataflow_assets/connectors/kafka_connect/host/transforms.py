"""Single message transforms and their predicates, as a worker of Kafka Connect applies them.

Each task has instances of its own. A record that a transformation drops is no row; its offset
counts all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jpype

from dataflow_assets.connectors.kafka_connect.host.virtual_machine import (
    VirtualMachine,
    java_map,
)
from dataflow_assets.errors import PermanentError

Config = Mapping[str, str]
_STEP = "org.apache.kafka.connect.transforms.Transformation"
_CONDITION = "org.apache.kafka.connect.transforms.predicates.Predicate"
_OURS = ("type", "predicate", "negate")


def helper_of(machine: VirtualMachine, config: Config) -> Any:
    """The helper of one task, which applies what `config` says.

    Raises:
        PermanentError: a transformation or a predicate is not there, or is of another kind.
    """
    helper = machine.new_helper()
    for name in _names(config, "transforms"):
        settings = _under(config, f"transforms.{name}.")
        step = _instance(machine, f"transforms.{name}", settings, _STEP)
        helper.add(
            step, _condition(machine, config, name, settings), settings.get("negate") == "true"
        )
    return helper


def _condition(machine: VirtualMachine, config: Config, step: str, found: Config) -> Any:
    name = found.get("predicate")
    if name is None:
        return None
    if name not in _names(config, "predicates"):
        raise PermanentError(f"transforms.{step}.predicate: {name} is not among predicates")
    return _instance(
        machine, f"predicates.{name}", _under(config, f"predicates.{name}."), _CONDITION
    )


def _instance(machine: VirtualMachine, key: str, config: Config, kind: str) -> Any:
    name = config.get("type")
    if not name:
        raise PermanentError(f"{key}.type: is required, the Java class")
    try:
        instance = machine.instance(name)
    except jpype.JClass("java.lang.ClassNotFoundException"):
        raise PermanentError(
            f"{key}.type: neither Kafka Connect nor the connector's plugin has the class {name}: "
            "write it with its package, or put its jar into the folder of the plugin"
        ) from None
    if not isinstance(instance, jpype.JClass(kind)):
        raise PermanentError(f"{key}.type: {name} is not a {kind.rpartition('.')[2]}")
    instance.configure(java_map({key: value for key, value in config.items() if key not in _OURS}))
    return instance


def _names(config: Config, key: str) -> list[str]:
    return [name.strip() for name in config.get(key, "").split(",") if name.strip()]


def _under(config: Config, prefix: str) -> dict[str, str]:
    return {k.removeprefix(prefix): value for k, value in config.items() if k.startswith(prefix)}
