"""Folders and files: every finding at once, none hides another, secrets stay where they are."""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from dataflow_assets.errors import ManifestError, PermanentError
from dataflow_assets.flow import Flow
from dataflow_assets.manifests.check import as_json, as_lines
from dataflow_assets.manifests.load import Loaded, load
from dataflow_assets.secrets import SecretRef
from dataflow_assets.testing import choose

SECRET = "hunter2-s3cret"
FLOW = """\
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata:
  name: {name}
spec:
  source:
    type: memory-offsets
    config: {{store: s, topic: {topic}}}
  sink:
    type: memory-slice
    config: {{store: s, table: {table}}}
"""
POSTGRES = """\
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata:
  name: {name}
  namespace: {namespace}
spec:
  source:
    type: memory-offsets
    config: {{store: s, topic: t}}
  sink:
    type: postgresql
    config:
      connectionStringSecretRef: {{name: pg, key: {key}}}
      table: orders
"""
SECRET_DOCUMENT = """\
apiVersion: v1
kind: Secret
metadata:
  name: pg
  namespace: {namespace}
stringData:
  dsn: "postgres://u:hunter2-s3cret@host/db"
"""


def flow(name: str = "a", topic: str = "t", table: str = "x") -> str:
    return FLOW.format(name=name, topic=topic, table=table)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(loaded: Loaded) -> list[str]:
    return [str(finding) for finding in loaded.findings]


def names(loaded: Loaded) -> list[str]:
    return [one.id for one in loaded.flows]


def test_a_flow(folder: Path) -> None:
    (folder / "a.yaml").write_text("# a note\n---\n" + flow())
    loaded = choose(load("a.yaml"), None)
    assert (loaded.id, loaded.slug, loaded.file, loaded.line) == (
        "default/a",
        "a",
        Path("a.yaml"),
        3,
    )
    assert len(loaded.hash) == 64
    assert str(loaded.branches[0].address) == "memory/s/x"


def test_folders_recursively_without_hidden_names(folder: Path) -> None:
    for place in (
        "f/a.yaml",
        "f/g/b.yml",
        "f/.c.yaml",
        "f/..data/d.yaml",
        "f/e.txt",
        "f/.git/x.yml",
    ):
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(flow(name=path.stem.strip(".")))
    (folder / "f/g/loop").symlink_to(folder / "f")
    assert names(load("f")) == ["default/a", "default/b"]
    assert names(load(["f", "f/a.yaml", str(folder / "f/a.yaml")])) == ["default/a", "default/b"]


def test_one_broken_file_hides_nothing(folder: Path) -> None:
    (folder / "bad.yaml").write_text(f"a: [{SECRET}\n")
    (folder / "binary.yaml").write_bytes(b"\xff\xfe\x00\x01")
    (folder / "control.yaml").write_bytes(b"a: \x00\n")
    (folder / "empty.yaml").write_text("")
    (folder / "good.yaml").write_text(flow())
    (folder / "huge.yaml").write_text("#" * 1_100_000)
    (folder / "list.yaml").write_text("- a\n")
    (folder / "long.yaml").write_text("a: 1\n" * 20_001)
    (folder / "nothing.yaml").write_text("kind: DataFlow\n")
    (folder / "pipe.yaml").symlink_to("/dev/null")
    (folder / "round.yaml").symlink_to("round.yaml")
    (folder / "text.yaml").write_text(f"{SECRET}\n")
    os.mkfifo(folder / "waits.yaml")
    loaded = load([".", "missing.yaml"])
    assert names(loaded) == ["default/a"]
    assert said(loaded) == [
        "bad.yaml:2:1: document: not valid YAML: a bracket is not closed, or a comma is missing",
        "binary.yaml:1:1: file: is not UTF-8 text",
        "control.yaml:1:4: document: not valid YAML: a character that it does not allow",
        "huge.yaml:1:1: file: is larger than 512 KiB: split it",
        "list.yaml:1:1: document: must be a mapping with apiVersion, kind, metadata and spec",
        "long.yaml:1:1: file: has more than 10000 entries: split it",
        "missing.yaml:1:1: file: no such file or folder",
        "nothing.yaml:1:1: apiVersion: is required: write dataflow.dataflow.io/v1",
        "nothing.yaml:1:1: metadata: is required",
        "nothing.yaml:1:1: spec: is required",
        "pipe.yaml:1:1: file: is not a regular file",
        "round.yaml:1:1: file: cannot be read: Too many levels of symbolic links",
        "text.yaml:1:1: document: must be a mapping with apiVersion, kind, metadata and spec",
        "waits.yaml:1:1: file: is not a regular file",
    ]


def test_a_file_that_may_not_be_read_is_a_finding(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "a.yaml").write_text(flow())

    def refuse(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refuse)
    assert said(load("a.yaml")) == ["a.yaml:1:1: file: cannot be read: Permission denied"]


def test_a_manifest_that_must_be_right_raises_every_finding(folder: Path) -> None:
    (folder / "a.yaml").write_text(flow().replace("topic", "topik"))
    with pytest.raises(ManifestError) as raised:
        choose(load("a.yaml"), None)
    assert [finding.line for finding in raised.value.findings] == [8, 8]


def test_other_kinds_are_noted_and_skipped(folder: Path) -> None:
    (folder / "a.yaml").write_text("apiVersion: v1\nkind: ConfigMap\n---\n" + flow())
    loaded = load("a.yaml")
    assert [str(hint) for hint in loaded.hints] == ["a.yaml:2:7: kind: is not a flow: skipped"]
    assert names(loaded) == ["default/a"]


def test_one_identity_once(folder: Path) -> None:
    (folder / "a.yaml").write_text(flow() + "---\n" + flow("b"))
    (folder / "b.yaml").write_text(flow())
    loaded = load(".")
    assert names(loaded) == ["default/b"]
    assert said(loaded) == [
        "a.yaml:4:9: metadata.name: duplicate flow name default/a, also defined in b.yaml:1",
        "b.yaml:4:9: metadata.name: duplicate flow name default/a, also defined in a.yaml:1",
    ]


def test_names_that_mangle_alike(folder: Path) -> None:
    (folder / "a.yaml").write_text(flow("a-b") + "---\n" + flow("a.b"))
    loaded = load(".")
    assert said(loaded) == [
        (
            "a.yaml:4:9: metadata.name: in Dagster the flow would be called a_b, "
            "and so would the one in a.yaml:13: rename one"
        ),
        (
            "a.yaml:16:9: metadata.name: in Dagster the flow would be called a_b, "
            "and so would the one in a.yaml:1: rename one"
        ),
    ]


def test_assets_that_mangle_alike(folder: Path) -> None:
    (folder / "a.yaml").write_text(flow("a", table="x.y") + "---\n" + flow("b", table="x_y"))
    loaded = load(".")
    assert loaded.flows == ()
    assert said(loaded) == [
        (
            "a.yaml:11:5: spec.sink.config: its asset key memory/s/x_y "
            "is also that of something else in a.yaml:13; "
            "give one of them a connection name of its own"
        ),
        (
            "a.yaml:23:5: spec.sink.config: its asset key memory/s/x_y "
            "is also that of something else in a.yaml:1; "
            "give one of them a connection name of its own"
        ),
    ]


FOLDERS = """\
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata:
  name: {name}
spec:
  source:
    type: memory-offsets
    config: {{store: s, topic: t}}
  sink:
    type: files
    config: {{path: {sink}}}
  errors:
    type: files
    config: {{path: {errors}}}
"""


@pytest.mark.parametrize(
    ("sink", "errors", "wrong"),
    [
        ("/lake/a/eu", "/lake/errors", ["spec.sink.config"]),
        ("s3://lake/a/eu", "s3://lake/a/errors", []),
        ("/lake/ab", "/lake/errors", []),
        ("/lake/a", "/lake/errors", []),
        ("/lake/b", "/lake/a/errors", ["spec.errors.config"]),
        ("/lake/b", "/lake/a", ["spec.errors.config"]),
        ("/lake/errors/b", "/lake/b", ["spec.sink.config"]),
        ("/lake/b", "/lake/b/errors", ["spec.errors.config"]),
    ],
)
def test_folders_of_flows_lie_side_by_side(
    sink: str, errors: str, wrong: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATAFLOW_FILES", "/lake")
    one = FOLDERS.format(name="one", sink="/lake/a", errors="/lake/errors")
    other = FOLDERS.format(name="other", sink=sink, errors=errors)
    (folder / "a.yaml").write_text(f"{one}---\n{other}")
    found = said(load("."))
    assert [line.split(": ")[1] for line in found] == wrong
    assert all("choose folders side by side" in line for line in found)


def test_several_flows_into_one_table_are_fine(folder: Path) -> None:
    (folder / "a.yaml").write_text(flow("a") + "---\n" + flow("b", topic="u"))
    found = load(".")
    assert found.findings == ()
    assert names(found) == ["default/a", "default/b"]


def test_a_list_of_objects_is_not_lost_unseen(folder: Path) -> None:
    (folder / "a.yaml").write_text("apiVersion: v1\nkind: List\nitems: []\n")
    (note,) = load(".").hints
    assert str(note) == "a.yaml:2:7: kind: has no items: nothing to read"


def test_a_flow_with_a_key_written_twice_does_not_run(folder: Path) -> None:
    (folder / "a.yaml").write_text(flow() + "spec: {}\n")
    loaded = load(".")
    assert loaded.flows == ()
    assert said(loaded) == ["a.yaml:12:1: spec: is written twice; first in line 5"]


def test_a_folder_that_cannot_be_listed_hides_no_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "shut").mkdir()
    (folder / "z.yaml").write_text(flow())
    real = Path.iterdir

    def refuse(self: Path) -> Iterator[Path]:
        if self.name == "shut":
            raise PermissionError(13, "Permission denied")
        return real(self)

    monkeypatch.setattr(Path, "iterdir", refuse)
    loaded = load(".")
    assert names(loaded) == ["default/a"]
    assert list(loaded.broken_files) == ["shut/(unreadable).yaml"]


def dsn(loaded: Flow) -> str:
    return loaded.secrets.get(SecretRef(name="pg", key="dsn"))


def test_secrets_of_the_folder(folder: Path) -> None:
    (folder / "a.yaml").write_text(POSTGRES.format(name="a", namespace="shop", key="dsn"))
    (folder / "s.yaml").write_text(SECRET_DOCUMENT.format(namespace="shop"))
    for paths in (["."], ["a.yaml"], ["a.yaml", "s.yaml"]):
        loaded = choose(load(paths), None)
        assert SECRET in dsn(loaded)
        assert SECRET not in repr(loaded)
        assert SECRET not in loaded.hash
        sink = loaded.resolve().branches[0].sink
        assert SECRET in sink.connection_string.get_secret_value()  # type: ignore[attr-defined]


def test_a_secret_of_another_namespace_is_not_found(folder: Path) -> None:
    (folder / "a.yaml").write_text(POSTGRES.format(name="a", namespace="shop", key="dsn"))
    (folder / "s.yaml").write_text(SECRET_DOCUMENT.format(namespace="default"))
    found = load(".")
    assert found.findings == ()
    (loaded,) = found.flows
    (hint,) = map(str, found.hints)
    assert hint == (
        "a.yaml:13:7: spec.sink.config.connectionStringSecretRef: secret shop/pg not found in "
        "this folder; at run time it is read from the Kubernetes API inside a cluster, from "
        "$DATAFLOW_SECRETS/shop/pg/dsn (DATAFLOW_SECRETS is not set) or from "
        "$DATAFLOW_SECRET__SHOP__PG__DSN"
    )
    with pytest.raises(PermanentError, match="failed to get secret shop/pg"):
        dsn(loaded)


def test_a_mounted_secret_needs_no_note(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "a.yaml").write_text(POSTGRES.format(name="a", namespace="shop", key="dsn"))
    (folder / "mounted/shop/pg").mkdir(parents=True)
    (folder / "mounted/shop/pg/dsn").write_text("postgres://u@h/db")
    monkeypatch.setenv("DATAFLOW_SECRETS", str(folder / "mounted"))
    found = load("a.yaml")
    assert found.findings == ()
    assert found.hints == ()
    assert dsn(found.flows[0]) == "postgres://u@h/db"


def test_a_key_that_the_secret_does_not_have(folder: Path) -> None:
    (folder / "a.yaml").write_text(
        SECRET_DOCUMENT.format(namespace="shop")
        + "---\n"
        + POSTGRES.format(name="a", namespace="shop", key="url")
    )
    loaded = load(".")
    assert loaded.flows == ()
    assert said(loaded) == [
        (
            "a.yaml:21:50: spec.sink.config.connectionStringSecretRef.key: "
            "not found in secret shop/pg; it has the keys dsn"
        ),
    ]


def test_secret_documents(folder: Path) -> None:
    text = dedent("""\
        apiVersion: v1
        kind: Secret
        metadata: {name: pg}
        data:
          one: ONE
          two: TWO
          bad: "%%%hunter2-s3cret"
          binary: //79
          number: 5
        stringData:
          two: "2"
          three: 3
        ---
        apiVersion: v1
        kind: Secret
        metadata: {}
        ---
        apiVersion: v1
        kind: Secret
        metadata: {name: pg}
        data: hunter2-s3cret
    """)
    encoded = base64.b64encode(b"first\n").decode()
    (folder / "a.yaml").write_text(text.replace("ONE", encoded).replace("TWO", encoded))
    (folder / "b.yaml").write_text(flow())
    loaded = load(".")
    assert said(loaded) == [
        "a.yaml:7:8: data.bad: is not text in base64; write plain text under stringData",
        "a.yaml:8:11: data.binary: is not text in base64; write plain text under stringData",
        "a.yaml:9:11: data.number: must be text, got a number: put it in quotes",
        "a.yaml:12:10: stringData.three: must be text, got a number: put it in quotes",
        "a.yaml:16:1: metadata.name: is required",
        "a.yaml:20:18: metadata.name: Secret default/pg is a duplicate; first in a.yaml:1",
        "a.yaml:21:7: data: must be a mapping, got text",
    ]
    (one,) = loaded.flows
    assert one.secrets.get(SecretRef(name="pg", key="one")) == "first\n"
    assert one.secrets.get(SecretRef(name="pg", key="two")) == "2"


def test_nothing_ever_shows_a_planted_secret(folder: Path) -> None:
    lines = flow().splitlines() + SECRET_DOCUMENT.format(namespace="x").splitlines()
    texts = ["\n".join([*lines[:i], f"{SECRET}", *lines[i:]]) for i in range(len(lines))]
    texts += ["\n".join([*lines[:i], f"  {SECRET}", *lines[i:]]) for i in range(len(lines))]
    texts += [
        "\n".join([*lines[:i], lines[i].split(":")[0] + f": {SECRET}", *lines[i + 1 :]])
        for i in range(len(lines))
    ]
    for number, text in enumerate(texts):
        (folder / f"{number}.yaml").write_text(text)
    loaded = load(".")
    assert len(loaded.findings) > 50
    shown = "\n".join([*as_lines(loaded), json.dumps(as_json(loaded)["findings"])])
    assert SECRET not in shown


def test_a_changed_file_is_read_again_and_an_unchanged_one_is_not(folder: Path) -> None:
    for number in range(100):
        (folder / f"{number}.yaml").write_text(flow(f"f{number}", table=f"t{number}"))
    first = load(".")
    second = load(".")
    assert second == first
    assert second.flows[0].source is first.flows[0].source
    (folder / "0.yaml").write_text(flow("f0", topic="other", table="t0"))
    changed = load(".").flow("f0")
    assert changed is not None
    assert changed.hash != first.flows[0].hash
    (folder / "0.yaml").unlink()
    assert len(load(".").flows) == 99


def test_loading_imports_no_heavy_client() -> None:
    heavy = ("pyspark", "dagster", "confluent_kafka", "pyiceberg", "pandas", "requests")
    load_all = "registry.sources(), registry.sinks(), load('examples')"
    code = f"""if True:
        import sys
        from dataflow_assets import registry
        from dataflow_assets.manifests.load import load
        {load_all}
        print([name for name in {heavy!r} if name in sys.modules])
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "[]"


def test_lines_and_json(folder: Path) -> None:
    text = flow().replace("spec:\n", "spec:\n  replicas: 0\n")
    (folder / "a.yaml").write_text(text + "---\n" + flow("b").replace("topic", "topik"))
    loaded = load(".")
    assert list(as_lines(loaded)) == [
        "a.yaml:21:5: spec.source.config.topic: is required",
        "a.yaml:21:24: spec.source.config.topik: unknown key; did you mean topic?",
        (
            "a.yaml:6:3: note: spec.replicas: 0 pauses the flow; above that, Spark's free slots "
            "decide, not this number"
        ),
        "a.yaml:1: flow default/a: memory/s/t -> memory/s/x (suspended)",
        "1 flow, 2 findings, 1 note",
    ]
    found = as_json(loaded)
    assert json.loads(json.dumps(found)) == found
    assert found["flows"][0]["id"] == "default/a"
    assert found["findings"][1] == {
        "file": "a.yaml",
        "line": 21,
        "column": 24,
        "path": "spec.source.config.topik",
        "message": "unknown key; did you mean topic?",
    }
