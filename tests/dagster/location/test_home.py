"""The folder of Dagster's instance, and the settings that come with the project."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import dagster as dg

from tests import ROOT

SETTINGS = ROOT / "dagster.yaml"


def test_a_home_without_settings_is_told_and_one_with_them_is_not(tmp_path: Path) -> None:
    assert f"Copy {SETTINGS} into it" in _told(tmp_path)
    shutil.copy(SETTINGS, tmp_path)
    assert "dagster.yaml" not in _told(tmp_path)


def test_the_settings_are_an_instance(tmp_path: Path) -> None:
    shutil.copy(SETTINGS, tmp_path)
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert instance.run_monitoring_enabled
        assert instance.get_concurrency_config().run_queue_config is not None


def _told(home: Path) -> str:
    """What loading the location says about this folder."""
    empty = home / "flows"
    empty.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-c", "import definitions"],
        env=os.environ | {"DAGSTER_HOME": str(home), "DATAFLOW_FLOWS": str(empty)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stderr
