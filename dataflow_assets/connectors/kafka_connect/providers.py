"""Config providers of Kafka Connect: values of a configuration that name where they are kept.

A reference is `${PROVIDER:KEY}` or `${PROVIDER:PATH:KEY}`. The providers `env`, `file` and
`directory` are there; `config.providers` declares others, as in the configuration of a worker. They
are asked in the host, when the connector starts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from dataflow_assets.sdk.local_folders import outside, within_root
from dataflow_assets.secrets import FOLDER, mounted_namespace

Config = Mapping[str, str]
LISTED = "config.providers"
PACKAGE = "org.apache.kafka.common.config.provider"
_SETTINGS = {
    "EnvVarConfigProvider": "allowlist.pattern",
    "FileConfigProvider": "allowed.paths",
    "DirectoryConfigProvider": "allowed.paths",
}
"""By the class of Kafka: the one setting that it has."""
_REFERENCE = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")  # as Connect's ConfigTransformer


class Provider(NamedTuple):
    """A declared one. `kind`: its class without package; `settings`: those of the class."""

    kind: str
    settings: Config

    @property
    def reads_files(self) -> bool:
        return self.kind != "EnvVarConfigProvider"


_THERE = {
    "env": Provider("EnvVarConfigProvider", {}),
    "file": Provider("FileConfigProvider", {}),
    "directory": Provider("DirectoryConfigProvider", {}),
}


class ConnectReference(NamedTuple):
    """One reference. `text`: as it is written. `path`: empty where it has none."""

    text: str
    provider: str
    path: str
    key: str


def references(value: str) -> Iterator[ConnectReference]:
    for match in _REFERENCE.finditer(value):
        yield ConnectReference(match[0], match[1], match[2] or "", match[3])


def is_reference(value: str) -> bool:
    """Returns whether all of a value is one reference, so that it has no secret in itself."""
    return _REFERENCE.fullmatch(value) is not None


def literals(value: str) -> list[str]:
    """Returns what a value says itself, around and between its references."""
    return [part for part in _REFERENCE.split(value)[:: _REFERENCE.groups + 1] if part]


def replace_references(value: str, found: Mapping[str, str]) -> str:
    """A value with what its references stand for. `found`: that, by their texts."""
    return _REFERENCE.sub(lambda one: found[one[0]], value)


def is_declaration(key: str) -> bool:
    """True for keys of the configuration that are for the providers, and not for the connector."""
    return key == LISTED or key.startswith(f"{LISTED}.")


def providers(config: Config) -> dict[str, Provider]:
    """Providers by name: those that are there, and those of a configuration without a `problem`."""
    return _THERE | {name: _provider(name, config) for name in _names(config)}


def problems(config: Config) -> Iterator[tuple[str, str]]:
    """(key, reason) of what cannot be in a connector's whole configuration.

    Called when a manifest is checked, and with the credentials in place when the host is started. A
    file or folder must be below DATAFLOW_FILES or DATAFLOW_SECRETS.
    """
    yield from _wrong_declarations(config)
    declared = providers(config)
    for key, value in config.items():
        for one in () if is_declaration(key) else references(value):
            if one.provider not in declared:
                yield key, f"{LISTED} does not list the provider {one.provider or '(no name)'}"
            elif reason := _wrong_place(declared[one.provider], one):
                yield key, reason


def places(config: Config) -> Iterator[tuple[str, str]]:
    """(key, path of a file or name of a variable) of each place that a reference leads to."""
    declared = providers(config)
    for key, value in config.items():
        for one in references(value):
            if provider := declared.get(one.provider):
                yield key, _file(provider, one) if provider.reads_files else one.key


def _names(config: Config) -> list[str]:
    return [name.strip() for name in config.get(LISTED, "").split(",") if name.strip()]


def _provider(name: str, config: Config) -> Provider:
    begin = f"{LISTED}.{name}.param."
    own = {key.removeprefix(begin): one for key, one in config.items() if key.startswith(begin)}
    return Provider(_kind(name, config), own)


def _kind(name: str, config: Config) -> str:
    return config.get(f"{LISTED}.{name}.class", "").removeprefix(f"{PACKAGE}.")


def _wrong_declarations(config: Config) -> Iterator[tuple[str, str]]:
    listed = _names(config)
    for name in listed:
        if _kind(name, config) not in _SETTINGS:
            allowed = ", ".join(_SETTINGS)
            yield f"{LISTED}.{name}.class", f"must be one of {allowed}, of the package {PACKAGE}"
    for key in config:
        name, _, rest = key.removeprefix(f"{LISTED}.").partition(".")
        if not is_declaration(key) or key == LISTED:
            continue
        parameter = f"param.{_SETTINGS.get(_kind(name, config), '')}"
        if name not in listed:
            yield key, f"{LISTED} does not list the provider {name}"
        elif rest not in ("class", parameter):
            yield key, f"is not a setting of this provider; allowed: class, {parameter}"


def _wrong_place(provider: Provider, one: ConnectReference) -> str:
    """Why a reference of this provider cannot be; empty where it can."""
    if not provider.reads_files:
        return f"a reference must be ${{{one.provider}:NAME}}" if one.path else ""
    if not one.path.startswith("/"):
        return f"a reference must be ${{{one.provider}:/PATH:KEY}}, with an absolute path"
    path = _file(provider, one)
    if within_root(path) or mounted_namespace(path) is not None:
        return ""
    return f"{outside(path)}; secrets may also be below the folder {FOLDER}"


def _file(provider: Provider, one: ConnectReference) -> str:
    return f"{one.path}/{one.key}" if provider.kind == "DirectoryConfigProvider" else one.path
