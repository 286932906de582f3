"""Flows -> assets: the only part of the engine that speaks Dagster."""

from dataflow_assets.assets.build import assets, broken_files, op_name
from dataflow_assets.assets.draining import Draining, FlowConfig
from dataflow_assets.assets.metadata import check_results, event_metadata, io_manager_key
from dataflow_assets.assets.runs import Runs

__all__ = [
    "Draining",
    "FlowConfig",
    "Runs",
    "assets",
    "broken_files",
    "check_results",
    "event_metadata",
    "io_manager_key",
    "op_name",
]
