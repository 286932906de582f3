"""References to config providers, resolved by Kafka's own classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jpype

from dataflow_assets.connectors.kafka_connect import providers
from dataflow_assets.connectors.kafka_connect.host.virtual_machine import java_map
from dataflow_assets.connectors.kafka_connect.providers import ConnectReference, Provider
from dataflow_assets.errors import PermanentError

_ABSENT = {
    "EnvVarConfigProvider": "the environment of the run has no {0.key}",
    "FileConfigProvider": "the file {0.path} has no key {0.key}",
    "DirectoryConfigProvider": "the folder {0.path} has no file {0.key}",
}


def resolve(config: Mapping[str, str]) -> tuple[dict[str, str], frozenset[str]]:
    """A connector's configuration as the connector gets it.

    Called by the host, once, after the JVM has started.

    Args:
        config: with references, and with the declarations of config providers.

    Returns:
        The configuration with neither, and the values that references stand for.

    Raises:
        PermanentError: what cannot be resolved, all of it, without any value.
    """
    own = {key: value for key, value in config.items() if not providers.is_declaration(key)}
    references = sorted({one for value in own.values() for one in providers.references(value)})
    declared = providers.providers(config)
    instances = {name: _instance(declared[name]) for name in {one.provider for one in references}}
    values, missing = dict[str, str](), dict[str, str]()
    for one in references:
        try:
            values[one.text] = _value(instances[one.provider], declared[one.provider], one)
        except LookupError as error:
            missing[one.text] = str(error.args[0])
    if missing:
        listed = "; ".join(f"{text}: {reason}" for text, reason in missing.items())
        raise PermanentError(f"config refers to values that are missing: {listed}")
    texts = {key: providers.replace_references(value, values) for key, value in own.items()}
    return texts, frozenset(values.values())


def _instance(provider: Provider) -> Any:
    instance = jpype.JClass(f"{providers.PACKAGE}.{provider.kind}")()
    instance.configure(java_map(dict(provider.settings)))
    return instance


def _value(instance: Any, provider: Provider, one: ConnectReference) -> str:
    """LookupError, with the reason, where it is missing."""
    keys = jpype.JClass("java.util.Collections").singleton(jpype.JString(one.key))
    try:
        value = instance.get(one.path, keys).data().get(one.key)
    except jpype.JClass("org.apache.kafka.common.config.ConfigException") as error:
        raise LookupError(str(error.getMessage())) from None
    if value is None:
        raise LookupError(_ABSENT[provider.kind].format(one) + _unless_allowed(provider))
    return str(value)


def _unless_allowed(provider: Provider) -> str:
    return "".join(f", or {name} does not allow it" for name in provider.settings)
