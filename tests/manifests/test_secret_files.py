"""Secrets as files: each below its folder, as Kubernetes mounts them, and nothing beside it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from psycopg.conninfo import conninfo_to_dict
from pydantic import SecretStr, ValidationError

from dataflow_assets.connectors.postgresql import dsn
from dataflow_assets.errors import PermanentError
from dataflow_assets.manifests.load import load
from dataflow_assets.secrets import SecretRef, Secrets, is_place, mounted_file

FLOW = """\
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata: {{name: a, namespace: shop}}
spec:
  source:
    type: kafka
    config:
      brokers: ["127.0.0.1:19092"]
      topicSecretRef: {ref}
  sink:
    type: memory-slice
    config: {{store: s, table: t}}
"""
POSTGRES = """\
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata: {{name: a}}
spec:
  source: {{type: memory-offsets, config: {{store: s, topic: t}}}}
  sink: {{type: postgresql, config: {{connectionString: "{dsn}", table: t}}}}
"""
PLANTED = "outside-s3cret"
OUTSIDE = [
    "..",
    ".",
    "",
    "..data",
    "../outside",
    "../../../outside",
    "/etc/hostname",
    "a/b",
    "a\\b",
    "a\0",
    "a\n",
    "a b",
    "~",
    "é",
    "a" * 254,
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of secrets, and a file beside it that nobody may read."""
    (tmp_path / "outside").write_text(PLANTED)
    found = tmp_path / "secrets"
    (found / "shop/pg").mkdir(parents=True)
    monkeypatch.setenv("DATAFLOW_SECRETS", str(found))
    return found


@pytest.mark.parametrize("part", OUTSIDE)
@pytest.mark.parametrize("field", ["name", "key", "namespace"])
def test_a_reference_is_one_name_each(field: str, part: str) -> None:
    with pytest.raises(ValidationError, match="must be one name"):
        SecretRef(**{"name": "pg", "key": "dsn", field: part})


@pytest.mark.parametrize("part", [p for p in OUTSIDE if "\0" not in p])
def test_check_refuses_a_reference_that_leaves_the_folder(tmp_path: Path, part: str) -> None:
    written = part.replace("\\", "\\\\").replace("\n", "\\n")
    (tmp_path / "a.yaml").write_text(FLOW.format(ref=f'{{name: pg, key: "{written}"}}'))
    loaded = load(tmp_path / "a.yaml")
    (finding,) = loaded.findings
    assert (finding.line, finding.path) == (9, "spec.source.config.topicSecretRef.key")
    assert "must be one name" in finding.message
    assert loaded.flows == ()


@pytest.mark.parametrize("part", OUTSIDE)
def test_a_reference_that_was_never_checked_is_refused_at_use(folder: Path, part: str) -> None:
    assert folder.is_dir()
    ref = SecretRef.model_construct(name="pg", key=part, namespace=None)
    with pytest.raises(PermanentError) as caught:
        Secrets("shop").get(ref)
    assert PLANTED not in str(caught.value)


def test_a_mounted_secret_with_the_links_of_kubernetes(folder: Path) -> None:
    """`key -> ..data/key`, `..data -> ..2026_01_31`: an update swaps one link."""
    mount = folder / "shop/pg"
    (mount / "..2026_01_31").mkdir()
    (mount / "..2026_01_31/dsn").write_text("value\n")
    (mount / "..data").symlink_to("..2026_01_31")
    (mount / "dsn").symlink_to("..data/dsn")
    assert Secrets("shop").get(SecretRef(name="pg", key="dsn")) == "value\n"


def test_the_folder_itself_may_be_a_link(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "shop/pg/dsn").write_text("value")
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.setenv("DATAFLOW_SECRETS", str(tmp_path / "link"))
    assert Secrets("shop").get(SecretRef(name="pg", key="dsn")) == "value"


@pytest.mark.parametrize("target", ["../../../outside", "/etc/hostname", "dsn", "missing"])
def test_a_link_out_of_the_folder_is_no_secret(folder: Path, target: str) -> None:
    (folder / "shop/pg/dsn").symlink_to(target)
    with pytest.raises(PermanentError, match="has no file shop/pg/dsn") as caught:
        Secrets("shop").get(SecretRef(name="pg", key="dsn"))
    assert PLANTED not in str(caught.value)


def test_a_linked_folder_that_leads_out_is_no_secret(folder: Path) -> None:
    (folder / "shop/far").symlink_to("/etc")
    with pytest.raises(PermanentError, match="failed to get secret shop/far"):
        Secrets("shop").get(SecretRef(name="far", key="hostname"))


def test_a_secret_that_is_not_text_says_so_without_its_bytes(folder: Path) -> None:
    (folder / "shop/pg/dsn").write_bytes(b"hunter2\xff")
    with pytest.raises(PermanentError, match=r"shop/pg/dsn below \w+ is not UTF-8 text") as caught:
        Secrets("shop").get(SecretRef(name="pg", key="dsn"))
    assert "hunter2" not in str(caught.value)


def test_a_document_may_be_of_any_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the DataFlow Operator, where that is allowed."""
    monkeypatch.setenv("DATAFLOW_SECRET_NAMESPACES", "*")
    secrets = Secrets("shop", {("shared", "pg"): {"dsn": SecretStr("value")}})
    assert secrets.get(SecretRef(name="pg", key="dsn", namespace="shared")) == "value"


def test_places_are_three_plain_names(folder: Path) -> None:
    (folder / "shop/pg/ca").write_text("PEM")
    assert mounted_file("shop/pg/ca") == folder / "shop/pg/ca"
    assert mounted_file("shop/pg/other") is None
    for text in ("", "a", "a/b", "a/b/c/d", "/a/b/c", "a//b", "../a/b", "a/../b", "a/b/..", "a/b/"):
        assert not is_place(text)


URL = "postgresql://u:pw-s3cret@h/d"
FILES = ["sslrootcert", "sslcert", "sslkey", "sslcrl"]
NEVER = ["passfile", "service", "sslcrldir", "sslkeylogfile", "gsslib"]


@pytest.mark.parametrize("form", [f"{URL}?{{}}={{}}", "host=h password=pw-s3cret {}={}"])
@pytest.mark.parametrize("option", FILES)
@pytest.mark.parametrize("path", ["~/ca", "../../outside", "outside", "shop/../pg/x"])
def test_a_connection_string_names_files_by_absolute_path_or_below_the_folder(
    form: str, option: str, path: str
) -> None:
    with pytest.raises(PermanentError, match=f"{option} must be an absolute path, PEM") as found:
        dsn.parse(form.format(option, path))
    assert "s3cret" not in str(found.value)


@pytest.mark.parametrize("option", FILES)
def test_a_file_that_is_not_pem_is_not_taken(option: str) -> None:
    with pytest.raises(PermanentError, match=f"{option}: /etc/hostname holds no whole PEM block"):
        dsn.conninfo(f"{URL}?{option}=/etc/hostname", "test")


@pytest.mark.parametrize("option", NEVER)
def test_options_that_read_or_write_files_of_their_own_are_refused(option: str) -> None:
    with pytest.raises(PermanentError, match=f"{option} names a file"):
        dsn.conninfo(f"{URL}?{option}=shop/pg/ca", "test")


def test_check_says_so_at_the_connection_string(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(POSTGRES.format(dsn=f"{URL}?passfile=/root/.pgpass"))
    (finding,) = load(tmp_path / "a.yaml").findings
    assert finding.path == "spec.sink.config.connectionString"
    assert "passfile names a file" in finding.message
    assert "root" not in finding.message


PEM = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


def test_certificates_become_private_files(folder: Path) -> None:
    (folder / "shop/pg/ca").write_text(f"a note\n{PEM}")
    for value in ("shop/pg/ca", str(folder / "shop/pg/ca"), quote(PEM)):
        found = dsn.conninfo(f"{URL}?sslrootcert={value}", "t")
        path = conninfo_to_dict(found)["sslrootcert"]
        assert Path(str(path)).read_text() == PEM
    assert "sslrootcert=system" in dsn.conninfo(f"{URL}?sslrootcert=system", "t")
    with pytest.raises(PermanentError, match="sslcert: DATAFLOW_SECRETS has no file shop/pg/crt"):
        dsn.conninfo(f"{URL}?sslcert=shop/pg/crt", "t")
