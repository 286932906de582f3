"""The location's `connections`: manifests that spell one system in several ways meet."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from dataflow_assets.manifests.load import Loaded, load

ORDERS = """\
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata:
  name: {name}
  namespace: {namespace}
  annotations: {{{annotations}}}
spec:
  source:
    type: kafka
    config: {{{source}, topic: orders}}
  sink:
    type: {sink}
    config: {{{target}}}
"""
SECRET_REF = "connectionStringSecretRef: {name: shop-database, key: dsn}, table: orders"
DSN = "connectionString: 'postgresql://u:hunter22@DB.example.com/shop', table: orders"
LAKE = "catalogURI: 'http://lake:8181/', warehouse: main, namespace: shop, table: orders"
PORT = 'brokers: ["two:9092", "one:9094"]'


def manifest(
    name: str,
    source: str = 'brokers: ["one:9092"]',
    sink: str = "postgresql",
    target: str = SECRET_REF,
    annotations: str = "",
    namespace: str = "default",
) -> str:
    return ORDERS.format(
        name=name,
        source=source,
        sink=sink,
        target=target,
        annotations=annotations,
        namespace=namespace,
    )


def loaded(folder: Path, files: Mapping[str, str]) -> Loaded:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return load(folder)


def ends(found: Loaded) -> dict[str, tuple[str, str]]:
    assert not found.findings
    return {
        flow.name: (flow.source_address.connection, flow.branches[0].address.connection)
        for flow in found.flows
    }


def test_several_spellings_meet_under_one_name(tmp_path: Path) -> None:
    names = """\
        events: [one, "two:9092", {secret: brokers}]
        shop: [{secret: shop-database}, db.example.com/shop]
        lake: http://lake:8181/main
        """
    found = loaded(
        tmp_path,
        {
            "connections.yaml": names,
            "a.yaml": manifest("a"),
            "b.yaml": manifest("b", PORT, target=DSN),
            "deep/c.yml": manifest(
                "c", "brokersSecretRef: {name: brokers, key: k}", "iceberg", LAKE
            ),
        },
    )
    assert ends(found) == {
        "a": ("events", "shop"),
        "b": ("events", "shop"),
        "c": ("events", "lake"),
    }
    assert not [hint for hint in found.hints if "connections" in hint.file]
    (alone,) = load(tmp_path / "a.yaml").flows
    assert alone.source_address.connection == "events"


def test_an_annotation_wins_over_the_setting_and_the_setting_over_the_slug(tmp_path: Path) -> None:
    files = {
        "connections.yml": "events: one:9092\n",
        "a.yaml": manifest("a", annotations="dataflow-assets/source-connection: mine"),
        "b.yaml": manifest("b"),
        "c.yaml": manifest("c", 'brokers: ["one:9093"]'),
    }
    found = ends(loaded(tmp_path, files))
    assert [found[name][0] for name in "abc"] == ["mine", "events", "one-9093"]


def test_an_error_sink_is_named_as_the_sinks_are(tmp_path: Path) -> None:
    errors = f"  errors: {{type: postgresql, config: {{{DSN.replace('orders', 'errors')}}}}}\n"
    files = {"o.yaml": manifest("o", target=DSN) + errors}
    found = loaded(tmp_path, {**files, "connections.yaml": "shop: db.example.com/shop\n"})
    assert not found.findings
    (flow,) = found.flows
    named = flow.policies.rejects.address
    assert named is not None
    assert (named.connection, named.name) == ("shop", "errors")
    assert flow.branches[0].address.connection == "shop"


def test_a_secret_may_be_meant_in_one_namespace_only(tmp_path: Path) -> None:
    files = {
        "connections.yaml": "shop: {secret: eu/shop-database}\nrest: {secret: shop-database}\n",
        "a.yaml": manifest("a", namespace="eu"),
        "b.yaml": manifest("b", namespace="us"),
    }
    found = ends(loaded(tmp_path, files))
    assert (found["a"][1], found["b"][1]) == ("shop", "rest")


def test_warehouses_of_one_catalog_stay_apart(tmp_path: Path) -> None:
    other = LAKE.replace("main", "other")
    files = {
        "connections.yaml": "lake: http://lake:8181/main\n",
        "a.yaml": manifest("a", sink="iceberg", target=LAKE),
        "b.yaml": manifest("b", sink="iceberg", target=other),
    }
    found = ends(loaded(tmp_path, files))
    assert (found["a"][1], found["b"][1]) == ("lake", "lake-8181-other")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("- one\n", "1:1: document: must be a mapping of short names to addresses, got a list"),
        ("a b: one\n", "1:1: (key): a name has letters"),
        ("events:\n", "1:1: events: must be addresses as manifests write them"),
        ("events: [one:9092, 7]\n", "1:20: events[1]: must be addresses as manifests write them"),
        ("events: {broker: one}\n", "1:9: events: must be addresses as manifests write them"),
        ("events: one\nshop:\n  - one\n", "3:5: shop[0]: is called events already, in "),
        ("events: one\nevents: two\n", "2:1: events: is written twice"),
        ("events: [one\n", "2:1: document: not valid YAML"),
        ("x: one:9094\ny: two\n", "1:4: x: "),
    ],
)
def test_what_is_wrong_is_told_with_its_place_and_hides_no_flow(
    tmp_path: Path, text: str, wanted: str
) -> None:
    found = loaded(tmp_path, {"connections.yaml": text, "b.yaml": manifest("b", PORT)})
    assert [flow.name for flow in found.flows] == ["b"]
    told = [str(finding).partition("connections.yaml:")[2] for finding in found.findings]
    assert any(line.startswith(wanted) for line in told), told
    assert load(tmp_path / "b.yaml").findings == ()


def test_an_entry_of_no_use_is_noted_and_nothing_of_it_is_shown(tmp_path: Path) -> None:
    text = "shop: postgresql://u:hunter22@elsewhere/shop\n"
    found = loaded(tmp_path, {"connections.yaml": text, "a.yaml": manifest("a", target=DSN)})
    (hint,) = [hint for hint in found.hints if "connections" in hint.file]
    assert (hint.line, hint.path) == (1, "shop")
    assert "no manifest writes its address like this: write it as a manifest has it" in hint.message
    assert "hunter22" not in repr(found.hints) + repr(found)


def test_a_manifest_may_be_called_connections(tmp_path: Path) -> None:
    assert list(ends(loaded(tmp_path, {"connections.yaml": manifest("a")}))) == ["a"]
