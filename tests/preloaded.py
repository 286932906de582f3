"""What the process imports that others are forked from: also what flows import when they run."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

import pyarrow.dataset
import pyarrow.parquet

from dataflow_assets import connectors, languages, manifests, micro_batch, runs
from dataflow_assets.registry import sinks, sources, steps

__all__ = ["pyarrow"]


def _import_all(package: ModuleType) -> None:
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(found.name)


for named in (sources, sinks, steps):
    named()
for package in (connectors, languages, manifests, micro_batch, runs):
    _import_all(package)
