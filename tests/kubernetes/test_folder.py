"""Objects become manifests that say the same, and files go only where an object is known gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataflow_assets.connectors.memory import Store
from dataflow_assets.kubernetes.folder import mirror_objects, replace_text
from dataflow_assets.kubernetes.objects import CustomResource
from dataflow_assets.manifests.load import load
from tests.kubernetes.objects import FLOWS, flow, resource


def mirrored(folder: Path, *objects: CustomResource) -> list[str]:
    return list(mirror_objects(folder, FLOWS, "shop", objects))


def test_an_object_is_a_flow(tmp_path: Path, store: Store) -> None:
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "team": "a"}
    one = resource(flow(store, freshness=20), annotations=annotations, managedFields=[{}])
    assert mirrored(tmp_path, one) == [
        f"DataFlow shop/orders: its manifest is in {tmp_path}/shop/orders.dataflow.yaml"
    ]
    loaded = load([tmp_path])
    assert (loaded.findings, loaded.hints) == ((), ())
    (made,) = loaded.flows
    assert (made.id, made.policies.freshness_seconds) == ("shop/orders", 20)
    assert made.annotations == {"team": "a"}


@pytest.mark.parametrize(
    "text", ['"', "a\\b", "ü €", "\U0001f600", "\x7f\x85\u2028\ufeff", "#x: {", "\t\n", "1e5", ""]
)
def test_any_text_of_an_object_is_read_as_it_is(text: str, tmp_path: Path, store: Store) -> None:
    mirrored(tmp_path, resource(flow(store), annotations={"text": text}))
    (made,) = load([tmp_path]).flows
    assert made.annotations == {"text": text}


def test_a_file_is_written_where_it_says_something_else(tmp_path: Path, store: Store) -> None:
    mirrored(tmp_path, resource(flow(store)))
    (file,) = tmp_path.rglob("*.yaml")
    before = file.stat().st_mtime_ns, file.stat().st_ino
    assert mirrored(tmp_path, resource(flow(store), resourceVersion="9", generation=4)) == []
    assert (file.stat().st_mtime_ns, file.stat().st_ino) == before
    assert len(mirrored(tmp_path, resource(flow(store, freshness=30)))) == 1
    assert [path.name for path in (tmp_path / "shop").iterdir()] == ["orders.dataflow.yaml"]


def test_only_files_of_the_kind_and_namespace_go(tmp_path: Path, store: Store) -> None:
    others = ("shop/orders.dataflowcron.yaml", "shop/own.yaml", "other/orders.dataflow.yaml")
    for name in others:
        replace_text(tmp_path / name, "{}")
    mirrored(tmp_path, resource(flow(store)), resource(flow(store, "people")))
    deleted = resource(flow(store, "people"), deletionTimestamp="2026-01-31T00:00:00Z")
    assert mirrored(tmp_path, deleted) == [
        f"DataFlow shop/{name}: it was deleted; {tmp_path}/shop/{name}.dataflow.yaml is removed"
        for name in ("orders", "people")
    ]
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.yaml"))
    assert left == sorted(others)
