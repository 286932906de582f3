"""Ticks share one instance of Dagster."""

from __future__ import annotations

from pathlib import Path

import dagster as dg

from dataflow_assets.location.sensors.instances import instance_of


def test_ticks_share_one_instance_until_another_dagster_asks(tmp_path: Path) -> None:
    one, other = (str(tmp_path / name) for name in ("one", "other"))
    for folder in (one, other):
        Path(folder).mkdir()
    with (
        dg.DagsterInstance.local_temp(one) as first,
        dg.DagsterInstance.local_temp(other) as second,
    ):
        ticks = [dg.build_sensor_context(instance) for instance in (first, first, second)]
        found = [instance_of(tick) for tick in ticks]
    assert found[0] is found[1]
    assert [instance.root_directory for instance in found] == [one, one, other]


def test_a_tick_of_a_test_has_the_instance_that_was_given() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        assert instance_of(dg.build_sensor_context(instance)) is instance
