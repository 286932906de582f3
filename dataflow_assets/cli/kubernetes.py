"""`dataflow k8s`: custom resources of a cluster as flows, and what a folder becomes in one."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dataflow_assets.cli import selection
from dataflow_assets.cli.console import out
from dataflow_assets.errors import PermanentError
from dataflow_assets.manifests.load import load
from dataflow_assets.secrets import cluster_api


def declare(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Adds the command to the command line."""
    parser = add("k8s", help="custom resources of Kubernetes as flows, and flows in a cluster")
    several = parser.add_subparsers(required=True, metavar="ACTION")
    crds = several.add_parser(
        "crds",
        help="print the definitions of the kinds DataFlow and DataFlowCron",
        description="Prints the CustomResourceDefinitions of the manifests' kinds, made of the "
        "models that manifests are checked by: dataflow k8s crds | kubectl apply -f -",
    )
    crds.set_defaults(command=_print_crds)
    watch = several.add_parser(
        "watch",
        help="keep a folder with the manifests of a cluster's objects, and write their status",
        description="Follows the objects of namespaces through the Kubernetes API, with the "
        "service account of its pod: each is a file of FOLDER, which a location reads, and gets "
        "its status from Dagster. Until it is ended.",
    )
    watch.add_argument("folder", metavar="FOLDER", type=Path, help="belongs to this command alone")
    watch.add_argument(
        "--namespace",
        action="append",
        metavar="NAME",
        help="whose objects are followed (default: that of the pod); may be repeated",
    )
    watch.add_argument(
        "--files-only",
        action="store_true",
        help="write nothing to the API server: for pods that need the folder beside the one that "
        "writes statuses",
    )
    watch.set_defaults(command=_watch)
    render = several.add_parser(
        "render",
        help="show what a folder of manifests becomes in a cluster",
        description="Prints the ConfigMap of a folder, the rights that its flows need, and as "
        "comments the Jobs that will run: dataflow k8s render FOLDER | kubectl apply -f -",
    )
    render.add_argument("folder", metavar="FOLDER", type=Path, help="with manifests")
    render.add_argument(
        "--name", default="dataflow", help="of the chart's release (default: %(default)s)"
    )
    render.add_argument(
        "--namespace", default="default", help="of that release (default: %(default)s)"
    )
    render.set_defaults(command=_render)


def _print_crds(_: argparse.Namespace) -> int:
    from dataflow_assets.kubernetes.crds import crds

    _print_documents(crds())
    return 0


def _render(asked: argparse.Namespace) -> int:
    from dataflow_assets.kubernetes.render import lanes, render

    loaded = load([asked.folder])
    selection.say_findings(loaded)
    _print_documents(render(asked.folder, loaded.flows, asked.name, asked.namespace))
    for line in lanes(loaded.flows):
        out(f"# {line}")
    return 1 if loaded.findings else 0


def _print_documents(documents: Any) -> None:
    from ruamel.yaml import YAML

    YAML().dump_all(documents, sys.stdout)


def _watch(asked: argparse.Namespace) -> int:
    from dataflow_assets.assets.standings import standings
    from dataflow_assets.kubernetes.watcher import Watcher

    if not cluster_api.inside():
        raise PermanentError(
            "this process is not in a Kubernetes cluster: KUBERNETES_SERVICE_HOST and the token of "
            f"a service account are needed ({cluster_api.ACCOUNT} names its folder)"
        )
    if not asked.files_only and not os.environ.get("DAGSTER_HOME"):
        raise PermanentError(
            "DAGSTER_HOME is not set, and statuses are made of what Dagster knows: set it to the "
            "folder with the dagster.yaml of the location's Dagster, or use --files-only"
        )
    namespaces = asked.namespace or [cluster_api.namespace()]
    watcher = Watcher(asked.folder, namespaces, None if asked.files_only else standings, out)
    ended = threading.Event()

    def end(*_: object) -> None:
        ended.set()
        watcher.wake()

    signal.signal(signal.SIGTERM, end)
    watcher.run(ended)
    return 0
