"""Names the extra that a flow needs installed: it has the name of its connector."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import metadata

from packaging.requirements import Requirement

NAME = "dataflow-assets"


def not_installed(connectors: Iterable[str]) -> str:
    """Returns what must be installed before these connectors work; empty where nothing is missing.

    Called when manifests are loaded, before a connector looks at its block; nothing is imported.
    """
    for name in connectors:
        if absent := missing(name):
            return (
                f"{name} needs {', '.join(map(_describe, absent))}: pip install '{NAME}[{name}]', "
                "then start Dagster, or the command, again"
            )
    return ""


@cache
def missing(extra: str) -> tuple[str, ...]:
    """The requirements of an extra that are not met, with those of the extras that it names."""
    try:
        required = metadata.requires(NAME) or ()
    except metadata.PackageNotFoundError:  # imported from a folder, without an installation
        return ()
    requirements = [Requirement(text) for text in required]
    own = [one for one in requirements if one.marker and one.marker.evaluate({"extra": extra})]
    extras = {other for one in own if one.name == NAME for other in one.extras}
    direct = tuple(f"{one.name}{one.specifier}" for one in own if not _is_met(one))
    return direct + tuple(text for other in sorted(extras) for text in missing(other))


def _is_met(one: Requirement) -> bool:
    installed = _version(one.name)
    return installed is not None and one.specifier.contains(installed, prereleases=True)


def _describe(requirement: str) -> str:
    name = Requirement(requirement).name
    installed = _version(name)
    return (
        f"{name} (not installed)"
        if installed is None
        else f"{requirement} (installed is {installed})"
    )


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
