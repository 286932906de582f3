"""Objects of Kubernetes that a folder of manifests becomes, for a location without watcher."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dataflow_assets.assets.lane_flows import drivable
from dataflow_assets.assets.runs import job_name
from dataflow_assets.assets.switches import INGEST
from dataflow_assets.errors import PermanentError
from dataflow_assets.flow import Flow
from dataflow_assets.kubernetes.access import role, secret_rules
from dataflow_assets.manifests.file_reading import read_file
from dataflow_assets.manifests.folders import is_manifest
from dataflow_assets.manifests.secret_refs import references
from dataflow_assets.secrets import Secrets, VariableRef

MOST_BYTES = 1_000_000  # of a ConfigMap: 1 MiB with all that is around the files


def render(
    folder: Path, flows: Sequence[Flow], name: str, namespace: str
) -> list[Mapping[str, Any]]:
    """Returns the ConfigMap of the folder, and the rights that its flows need.

    Args:
        folder: with manifests and Python files.
        flows: that are in it.
        name: of the ConfigMap `<name>-flows`, and of the service account.
        namespace: of both.

    Raises:
        PermanentError: a ConfigMap cannot hold the folder, and why.
    """
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{name}-flows", "namespace": namespace},
        "data": _data(folder),
    }
    account = f"{namespace}/{name}"
    rights = [
        document
        for secret_namespace, names in sorted(_secrets(flows).items())
        for document in role(f"{name}-secrets", secret_namespace, secret_rules([*names]), account)
    ]
    return [config_map, *rights]


def lanes(flows: Iterable[Flow]) -> Iterator[str]:
    """Yields a line for each lane and each flow that no lane drives: the Jobs there will be."""
    by_lane: dict[str, list[str]] = defaultdict(list)
    alone = []
    for flow in flows:
        if drivable(flow):
            by_lane[flow.lane].append(flow.id)
        elif not flow.suspended:
            alone.append(flow)
    for lane, members in sorted(by_lane.items()):
        yield f"lane {lane}: a Job of Dagster's job {INGEST} drives {', '.join(members)}"
    for flow in alone:
        yield f"flow {flow.id}: a Job of Dagster's job {job_name(flow)} for each run"


def _data(folder: Path) -> dict[str, str]:
    if not folder.is_dir():
        raise PermanentError(f"{folder} is not a folder: a ConfigMap is made of a folder's files")
    files = [path for path in sorted(folder.iterdir()) if is_manifest(path) or path.suffix == ".py"]
    if below := [path for path in folder.glob("*/**/*") if is_manifest(path)]:
        raise PermanentError(
            f"{below[0]} is in a folder below {folder}, and a ConfigMap has no folders: move the "
            "file up, or let the cluster read the folder from its git repository"
        )
    if plain := [path for path in files if read_file(path).secrets]:
        raise PermanentError(
            f"{plain[0]} has a Secret, which would be readable in a ConfigMap: apply it to the "
            "cluster, and take it out of the file"
        )
    data = {path.name: path.read_text(encoding="utf-8") for path in files}
    if (size := sum(len(text.encode()) for text in data.values())) > MOST_BYTES:
        raise PermanentError(
            f"the files of {folder} have {size} bytes, and a ConfigMap holds {MOST_BYTES}: let the "
            "cluster read the folder from its git repository"
        )
    return data


def _secrets(flows: Iterable[Flow]) -> Mapping[str, set[str]]:
    """The names of Secrets that flows read, by namespace."""
    names: dict[str, set[str]] = defaultdict(set)
    for flow in flows:
        for _, ref in references(flow):
            if not isinstance(ref, VariableRef):
                key = Secrets(flow.namespace).key(ref)
                names[key.namespace].add(key.name)
    return names
