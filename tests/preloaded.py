"""What the process imports that others are forked from: also what flows import when they run."""

from __future__ import annotations

import dataflow_assets.connectors.files.sink.session
import dataflow_assets.connectors.files.source.session
import dataflow_assets.runs.drain
from dataflow_assets import registry

__all__ = ["dataflow_assets"]

for found in (registry.sources, registry.sinks, registry.steps):
    found()
