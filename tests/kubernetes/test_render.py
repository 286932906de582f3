"""A folder of manifests as objects of Kubernetes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from dataflow_assets.cli import main

FLOW = """\
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata: {{name: {name}, namespace: shop, annotations: {{dataflow-assets/lane: {lane}}}}}
spec:
  source: {{type: kafka, config: {{brokers: ["b:9092"], topic: t, consumerGroup: {name}}}}}
  sink:
    type: postgresql
    config:
      connectionStringSecretRef: {{name: {secret}, key: dsn}}
      table: {name}
      autoCreateTable: true
"""
SECRET = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: shop}\nstringData: {}\n"


def write(folder: Path, name: str, lane: str = "shared", ref: str = "pg", more: str = "") -> str:
    text = FLOW.format(name=name, lane=lane, secret=ref) + more
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.yaml").write_text(text)
    return text


def test_a_folder_is_a_config_map_rights_and_lanes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [write(tmp_path, "a"), write(tmp_path, "b"), write(tmp_path, "c", "slow", "other")]
    (tmp_path / "notes.txt").write_text("not a manifest")
    assert main(["k8s", "render", str(tmp_path), "--namespace", "data"]) == 0
    out = capsys.readouterr().out
    config_map, role, binding = yaml.safe_load_all(out)
    assert config_map["metadata"] == {"name": "dataflow-flows", "namespace": "data"}
    assert config_map["data"] == dict(zip(("a.yaml", "b.yaml", "c.yaml"), texts, strict=True))
    assert role["metadata"]["namespace"] == "shop"
    assert role["rules"] == [
        {
            "apiGroups": [""],
            "resources": ["secrets"],
            "verbs": ["get"],
            "resourceNames": ["other", "pg"],
        }
    ]
    account = {"kind": "ServiceAccount", "name": "dataflow", "namespace": "data"}
    assert binding["subjects"] == [account]
    assert [line for line in out.splitlines() if line.startswith("#")] == [
        "# lane shared: a Job of Dagster's job ingest drives shop/a, shop/b",
        "# lane slow: a Job of Dagster's job ingest drives shop/c",
    ]


@pytest.mark.parametrize("case", ["folder", "secret", "size", "file"])
def test_what_no_config_map_can_hold(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, words = tmp_path, ""
    if case == "folder":
        write(tmp_path / "below", "a")
        words = "is in a folder below"
    elif case == "secret":
        write(tmp_path, "a", more=SECRET)
        words = "a.yaml has a Secret, which would be readable in a ConfigMap"
    elif case == "size":
        write(tmp_path, "a")
        (tmp_path / "large.py").write_text("#" * 1_000_001)
        words = "bytes, and a ConfigMap holds 1000000"
    else:
        write(tmp_path, "a")
        path, words = tmp_path / "a.yaml", "is not a folder"
    assert main(["k8s", "render", str(path)]) == 1
    caught = capsys.readouterr()
    assert words in caught.err
    assert caught.out == ""


def test_a_mistake_in_the_folder_ends_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "a", more="  freshness: 0\n")
    assert main(["k8s", "render", str(tmp_path)]) == 1
    assert "spec.freshness" in capsys.readouterr().err
