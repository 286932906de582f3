"""Flows as a component: scaffolded by Dagster's own tools, loaded from its YAML."""

from __future__ import annotations

import dagster as dg
import pytest
import yaml
from dagster.components.testing import create_defs_folder_sandbox

from dataflow_assets.location.component import EXAMPLE, FlowsComponent


@pytest.mark.filterwarnings("ignore:`parse_obj_as` is deprecated")  # by Dagster 1.13
@pytest.mark.filterwarnings("ignore::dagster.BetaWarning")  # its own, of what it builds
def test_what_is_scaffolded_loads_and_is_a_suspended_flow() -> None:
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(component_cls=FlowsComponent)
        declared = yaml.safe_load((path / "defs.yaml").read_text())
        assert declared == {
            "type": "dataflow_assets.location.component.FlowsComponent",
            "attributes": {"folders": ["flows"]},
        }
        assert (path / "flows" / "orders.yaml").read_text() == EXAMPLE
        with sandbox.load_component_and_build_defs(defs_path=path) as (component, defs):
            assert isinstance(component, FlowsComponent)
            assert {"orders_job", "ingest"} <= set(defs.get_repository_def().job_names)
            keys = {spec.key.to_user_string() for spec in defs.resolve_all_asset_specs()}
            assert "postgresql/shop_database/public/orders" in keys
            sensor = defs.resolve_sensor_def("orders_sensor")
            with dg.DagsterInstance.ephemeral() as instance:
                tick = sensor.evaluate_tick(dg.build_sensor_context(instance))
            assert "suspended in its manifest" in str(tick.skip_message)
