"""One end of a flow: the block of a source or a sink, validated by the connector's own model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dataflow_assets import registry
from dataflow_assets.contracts import Connector
from dataflow_assets.errors import DataflowError, Finding
from dataflow_assets.errors.likely_names import did_you_mean_or
from dataflow_assets.languages.common.documents import Document, Path
from dataflow_assets.languages.common.keys import models_at
from dataflow_assets.languages.common.packages import not_installed
from dataflow_assets.languages.common.wording import rule_finding, validate


def end(
    document: Document, path: Path, classes: Mapping[str, type[Connector]]
) -> tuple[Any, list[Finding]]:
    """The connector of one end, validated by its own model; None with the reasons."""
    name, config = document.get(*path, "type"), document.get(*path, "config")
    if not isinstance(name, str):
        return None, []
    if name not in classes:
        return None, [
            document.finding(
                (*path, "type"),
                _no_type(name, "source" if path[-1] == "source" else "sink", classes),
            )
        ]
    if problem := not_installed([name]):
        return None, [document.finding((*path, "type"), problem)]
    if not isinstance(config, dict) or not config:
        return None, []
    connector, findings = validate(classes[name], document, (*path, "config"))
    findings += _empty(document, (*path, "config"), classes[name])
    findings = findings or list(_without_address(document, path, connector))
    return (None if findings else connector), findings


def _empty(document: Document, base: Path, model: type[Connector]) -> Iterator[Finding]:
    """Keys without a value in a mapping, such as a column without its type: they would be lost."""
    for path in document.empty:
        inside = path[: len(base)] == base and len(path) > len(base) + 1
        if inside and not models_at(path[:-1], model, base):
            yield document.finding(path, "has no value: write one, or remove the key", key=True)


def _without_address(
    document: Document, path: Path, connector: Connector | None
) -> Iterable[Finding]:
    """An address that cannot be told is a finding here, not an exception while assets load."""
    if connector is None:
        return
    try:
        connector.address()
    except DataflowError as error:
        yield rule_finding(str(error), (*path, "config"), [type(connector)], document)
    except (ValueError, LookupError) as error:
        message = f"does not say where it points ({type(error).__name__}): check its addresses"
        yield document.finding((*path, "config"), message, key=True)


def _no_type(name: str, end: str, classes: Mapping[str, type[Connector]]) -> str:
    allowed = "allowed: " + ", ".join(one for one, cls in classes.items() if not cls.double)
    if name in registry.sources():
        return f"{name} is a source only; {allowed}"
    advice = did_you_mean_or(name, classes, "")
    return f"unknown {end} type; {advice}{advice and ' '}{allowed}"
