"""The wheel in an environment of its own, beside a project that has folders called as ours are."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests import ROOT

PAGE = ROOT / "docs" / "dagster-project.md"
PROJECT = {
    "jobs/__init__.py": "",
    "jobs/nightly.py": """\
import dagster as dg


@dg.job
def nightly():
    @dg.op
    def work(): ...

    work()
""",
    "definitions.py": PAGE.read_text().partition("```python\n")[2].partition("```")[0],
    "flows/copy.yaml": """\
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata: { name: copy }
spec:
  source:
    type: files
    config: { path: FILES/in, glob: "*.jsonl" }
  sink:
    type: files
    config: { path: FILES/out }
""",
    "files/in/orders.jsonl": '{"id": 1, "total": 2.5}\n{"id": 2, "total": 7}\n',
}


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: a build leaves a folder behind."""
    copy, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE", "definitions.py"):
        shutil.copy(ROOT / name, copy)
    for name in ("dataflow_assets", "devservers", "jobs", "resources", "sensors"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", built, copy], check=True)
    (only,) = built.glob("*.whl")
    return only


@pytest.fixture(scope="session")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with the wheel; what the wheel needs is that of this environment."""
    venv = tmp_path_factory.mktemp("environment") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (site,) = venv.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (site / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return venv / "bin" / "python"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in PROJECT.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace("FILES", str(tmp_path / "files")))
    (tmp_path / "files" / "out").mkdir()
    (tmp_path / "home").mkdir()
    return tmp_path


def run(python: Path, project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    own = {
        "DAGSTER_HOME": str(project / "home"),
        "DATAFLOW_FILES": str(project / "files"),
        "DATAFLOW_CACHE": str(ROOT / ".cache"),
        "DATAFLOW_SPARK": "local",
    }
    kept = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [python, *arguments],
        cwd=project,
        env=kept | own,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_the_wheel_holds_one_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
        held = set(archive.namelist())
    assert {top for top in tops if not top.endswith(".dist-info")} == {"dataflow_assets"}
    others = {"py.typed", "spark/fair_jobs.xml", "spark/jars.lock"}
    assert {f"dataflow_assets/{name}" for name in others} <= held


def test_flows_are_definitions_of_a_project_that_has_jobs_of_its_own(
    python: Path, project: Path
) -> None:
    code = """
import json, sys
import dataflow_assets, definitions, jobs
names = sorted(definitions.defs.get_repository_def().job_names)
print(json.dumps([names, dataflow_assets.__file__, jobs.__file__]))
"""
    done = run(python, project, "-c", code)
    names, ours, theirs = json.loads(done.stdout)
    assert names == ["__ASSET_JOB", "copy_job", "ingest", "nightly"]
    assert Path(ours).is_relative_to(python.parents[1])
    assert Path(theirs).is_relative_to(project)


def test_the_command_checks_and_says_where_local_servers_are(python: Path, project: Path) -> None:
    command = "import sys; from dataflow_assets.cli import main; sys.exit(main())"
    checked = run(python, project, "-c", command, "check", "flows")
    assert checked.stdout.splitlines()[-1] == "1 flow, 0 findings, 0 notes"
    servers = subprocess.run(
        [python, "-c", command, "demo"], cwd=project, capture_output=True, text=True, check=False
    )
    assert servers.returncode == 1
    assert "in a clone of the repository only: run `make demo`" in servers.stderr


@pytest.mark.full
def test_a_flow_runs_in_such_a_project(python: Path, project: Path) -> None:
    run(python, project, "-m", "dagster", "job", "execute", "-m", "definitions", "-j", "copy_job")
    stored = [
        json.loads(line)
        for file in sorted((project / "files" / "out").glob("*.jsonl"))
        for line in file.read_text().splitlines()
    ]
    assert sorted(stored, key=lambda row: row["id"]) == [
        {"id": 1, "total": 2.5},
        {"id": 2, "total": 7},
    ]
