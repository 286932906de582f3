"""Goes on where another program has stopped, by its file or by what it keeps beside the table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from dataflow_assets.contracts import Run
from dataflow_assets.contracts.capabilities import AdoptsCheckpoints
from dataflow_assets.errors import PermanentError
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.languages.promises import TakesOver
from dataflow_assets.runs.start_positions import first

_KEY = "checkpoint.json"
_NONE = "no checkpoint of the DataFlow Operator"
_WANTED = f"give the ConfigMap df-<name>-checkpoint as YAML or JSON, or the content of its {_KEY}"


def adopt_file(flow: Flow, run: Run, text: str) -> list[Branch]:
    """Stores the Operator's position as the start of every branch, under an epoch of its own.

    Called by `dataflow reset --checkpoint FILE`.

    Args:
        flow: the flow that the Operator has driven.
        run: who takes the epoch.
        text: the ConfigMap, its `checkpoint.json`, or the object of the source's type in it.

    Returns:
        The branches, each with its new start.

    Raises:
        PermanentError: the text is none of these.
    """
    document = checkpoint(text, flow.source.type)
    resolved = flow.resolve()
    with closing(resolved.source.open(flow.id)) as source:
        if not isinstance(source, AdoptsCheckpoints):
            raise PermanentError("this source takes over no checkpoint of the DataFlow Operator")
        positions, identity = source.adopt(document), source.identity
        for branch in resolved.branches:
            with closing(branch.sink.open(resolved.target(branch), run)) as session:
                session.restart(positions, identity)
    return list(resolved.branches)


def adopt_stored(flow: Flow, run: Run) -> list[Branch]:
    """Stores the positions beside each branch's table as its start, under an epoch of its own.

    Called by `dataflow reset --checkpoint` without a file.

    Args:
        flow: the flow whose tables the other program has filled.
        run: who takes the epoch.

    Returns:
        The branches, each with its new start.

    Raises:
        PermanentError: no other program can have filled these tables; or as `first` says.
    """
    resolved = flow.resolve()
    with closing(resolved.source.open(flow.id)) as source:
        for branch in resolved.branches:
            with closing(branch.sink.open(resolved.target(branch), run)) as session:
                if not isinstance(session, TakesOver):
                    raise PermanentError(
                        f"flow {flow.id}: {branch.address} has no positions of another program: "
                        f"name the file with the DataFlow Operator's checkpoint: --checkpoint FILE"
                    )
                session.restart(first(source, session), source.identity)
    return list(resolved.branches)


def checkpoint(text: str, source: str) -> Mapping[str, Any]:
    """The object of one source type in the Operator's checkpoint."""
    document = _load(text, YAML(typ="safe", pure=True).load)
    if isinstance(document.get("data"), dict) and _KEY in document["data"]:
        document = _load(document["data"][_KEY], json.loads)
    inner = document.get(source, document)
    if not isinstance(inner, dict) or not inner or all(isinstance(v, dict) for v in inner.values()):
        keys = ", ".join(document) or "nothing"
        raise PermanentError(f"the file has no checkpoint of a {source} source, but {keys}")
    return inner


def _load(text: Any, load: Any) -> dict[str, Any]:
    try:
        document = load(text)
    except (YAMLError, ValueError, TypeError) as error:
        why = str(error).splitlines()[0]
        raise PermanentError(f"{_NONE}: {why}; {_WANTED}") from None
    if not isinstance(document, dict):
        raise PermanentError(f"{_NONE}; {_WANTED}")
    return document
