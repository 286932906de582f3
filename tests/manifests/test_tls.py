"""Certificates and keys: text or a file by one rule, private files, and sentences without them."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from dataflow_assets.errors import PermanentError
from dataflow_assets.manifests.load import Loaded, load
from dataflow_assets.secrets import tls
from dataflow_assets.secrets.private_files import private_file
from dataflow_assets.secrets.tls import Material, Tls, pem
from dataflow_assets.spec import hints
from devservers.certificates import Authority, Certificate

HIDDEN = "hush-hush"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"), "trusted")


@pytest.fixture(scope="module")
def mine(authority: Authority) -> Certificate:
    return authority.issue("flow")


def block(**config: Any) -> Tls:
    return Tls.model_validate(config)


MANIFEST = """\
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata: {name: a, namespace: shop}
spec:
  source: {type: kafka, config: {brokers: [k:9092], topic: t}}
  sink:
    type: TYPE
    config: CONFIG
"""
PLACES = {
    "tls": ("kafka", "{brokers: [k:9092], topic: u, tls: {caFile: 'FILE'}}"),
    "tls, a key": (
        "kafka",
        "{brokers: [k:9092], topic: u, tls: {certFile: /dev/zero/no, keyFile: 'FILE'}}",
    ),
    "PostgreSQL": (
        "postgresql",
        "{connectionString: 'postgresql://h/d?sslmode=verify-ca&sslrootcert=FILE', table: t}",
    ),
    "ClickHouse": ("clickhouse", "{connectionString: 'https://u@h/d?ca_cert=FILE', table: t}"),
    "Trino": ("trino", "{serverURL: 'https://t', catalog: c, schema: s, table: t, ca: 'FILE'}"),
}


def checked(folder: Path, place: str, file: str) -> Loaded:
    type_, config = PLACES[place]
    text = MANIFEST.replace("TYPE", type_).replace("CONFIG", config.replace("FILE", file))
    (folder / "a.yaml").write_text(text)
    return load(folder / "a.yaml")


@pytest.mark.parametrize("place", PLACES)
def test_check_notes_a_file_that_is_not_on_this_machine(tmp_path: Path, place: str) -> None:
    """It may be there where the flow runs; so the manifest is a flow all the same."""
    path = tmp_path / "ca.pem"
    found = checked(tmp_path, place, str(path))
    assert not found.findings
    assert found.flows
    said = f"{path} is not on this machine; the file must be on every machine where the flow runs"
    assert any(note.message.startswith(said) for note in found.hints)
    path.touch()
    assert not any(str(path) in note.message for note in checked(tmp_path, place, str(path)).hints)


@pytest.mark.parametrize("place", PLACES)
def test_check_notes_a_name_below_the_secrets_folder_that_has_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    mounts = tmp_path / "mounts"
    (mounts / "shop/kafka").mkdir(parents=True)
    monkeypatch.setenv("DATAFLOW_SECRETS", str(mounts))
    said = "DATAFLOW_SECRETS has no file shop/kafka/ca on this machine"
    found = checked(tmp_path, place, "shop/kafka/ca")
    assert not found.findings
    assert any(note.message.startswith(said) for note in found.hints)
    (mounts / "shop/kafka/ca").touch()
    found = checked(tmp_path, place, "shop/kafka/ca")
    assert not any(note.message.startswith(said) for note in found.hints)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("value", [f"certs/{HIDDEN}.pem", HIDDEN])
def test_check_refuses_what_is_neither_text_nor_a_file_s_name(
    tmp_path: Path, place: str, value: str
) -> None:
    found = checked(tmp_path, place, value)
    (finding,) = found.findings
    assert "must be an absolute path, PEM text, or" in finding.message
    assert HIDDEN not in str(found)


def test_a_value_without_form_from_a_secret_is_said_without_it() -> None:
    """A Secret's value is known only when the flow runs."""
    with pytest.raises(PermanentError, match="the value is neither PEM text") as caught:
        Tls().model_copy(update={"ca_file": HIDDEN}).material()
    assert HIDDEN not in str(caught.value)


def test_text_and_path_are_the_same(authority: Authority, mine: Certificate) -> None:
    paths = {"caFile": authority.ca, "certFile": mine.cert, "keyFile": mine.key}
    by_path = block(**{key: str(path) for key, path in paths.items()}).material()
    texts = {key: f"made by openssl\n\n{path.read_text()}#" for key, path in paths.items()}
    assert block(**texts).material() == by_path
    assert by_path.ca.startswith("-----BEGIN CERTIFICATE-----\n")
    assert by_path.ca.endswith("-----END CERTIFICATE-----\n")
    assert by_path.verify


def test_a_name_is_below_the_secrets_folder(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATAFLOW_SECRETS", str(tmp_path))
    (tmp_path / "shop/kafka").mkdir(parents=True)
    (tmp_path / "shop/kafka/ca").write_text(authority.ca.read_text())
    assert pem("shop/kafka/ca", "tls.caFile") == pem(str(authority.ca), "tls.caFile")
    with pytest.raises(PermanentError, match=r"tls\.caFile: DATAFLOW_SECRETS has no file"):
        pem("shop/kafka/x", "tls.caFile")


def test_a_bundle_stays_whole(authority: Authority, tmp_path: Path) -> None:
    other = Authority(authority.folder, "other")
    both = tmp_path / "ca.pem"
    both.write_text(authority.ca.read_text() + "\n# another\n" + other.ca.read_text())
    assert pem(str(both), "x").count("BEGIN CERTIFICATE") == 2
    assert block(caFile=str(both)).material().ca == pem(str(both), "x")


@pytest.mark.parametrize("value", [None, "", "  \n"])
def test_nothing_is_nothing(value: str | None) -> None:
    assert pem(value, "x") == ""


BROKEN = "-----BEGIN CERTIFICATE-----\naHVzaC1odXNo\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (f"-----BEGIN {HIDDEN}", "tls.caFile: the value holds no whole PEM block"),
        (
            "/nowhere/ca.crt",
            "tls.caFile: /nowhere/ca.crt: No such file or directory; the file must",
        ),
        ("/etc", "tls.caFile: /etc: Is a directory"),
        ("/dev/zero", "tls.caFile: /dev/zero is not a PEM file"),
        ("/etc/hostname", "tls.caFile: /etc/hostname holds no whole PEM block"),
        (f"/{HIDDEN}+base64=", "tls.caFile: the file that it names: No such file"),
        (BROKEN, "tls.caFile: its PEM blocks must be CERTIFICATE, and whole"),
    ],
)
def test_what_is_none_is_said_without_its_value(value: str, sentence: str) -> None:
    with pytest.raises(PermanentError, match=sentence) as caught:
        block(caFile=value).material()
    assert HIDDEN not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"-----BEGIN A-----" * 100_000)
    with pytest.raises(PermanentError, match="is not a PEM file"):
        pem(str(tmp_path / "large"), "x")


def test_certificate_and_key_belong_together(authority: Authority, mine: Certificate) -> None:
    other = authority.issue("other")
    with pytest.raises(PermanentError, match="tls: certFile and keyFile do not belong together"):
        block(certFile=str(mine.cert), keyFile=str(other.key)).material()
    with pytest.raises(PermanentError, match="must be a certificate and a private key in PEM"):
        block(certFile=str(mine.key), keyFile=str(mine.cert)).material()
    with pytest.raises(ValidationError, match="certFile and keyFile belong together"):
        block(certFile=str(mine.cert))


def test_a_key_with_a_password_is_refused(mine: Certificate, tmp_path: Path) -> None:
    locked = tmp_path / "locked.key"
    command = ["openssl", "pkey", "-in", str(mine.key), "-aes256", "-passout", "pass:x"]
    subprocess.run([*command, "-out", str(locked)], check=True, capture_output=True)
    with pytest.raises(PermanentError, match="protected by a password, which is not supported"):
        block(certFile=str(mine.cert), keyFile=str(locked)).material()


def test_nothing_is_shown(mine: Certificate, authority: Authority) -> None:
    found = block(caFile=str(authority.ca), certFile=str(mine.cert), keyFile=mine.key.read_text())
    key = found.key_file
    assert isinstance(key, SecretStr)
    assert "BEGIN" not in repr(found)
    assert "BEGIN" not in repr(found.material())


@pytest.mark.parametrize(
    ("config", "verify", "note"),
    [
        ({}, True, None),
        ({"insecureSkipVerify": True}, False, "the server's certificate is not checked"),
        ({"insecureSkipVerify": True, "caFile": "CA"}, True, "ignored: a CA is given"),
    ],
)
def test_skipping_is_ignored_beside_a_ca(
    config: dict[str, Any], verify: bool, note: str | None, authority: Authority
) -> None:
    given = {key: str(authority.ca) if value == "CA" else value for key, value in config.items()}
    assert block(**given).material().verify is verify
    assert [note in sentence for _, sentence in hints(block(**given)) if note] == [True] * bool(
        note
    )


def test_a_private_file_is_this_process_s_alone(tmp_path: Path) -> None:
    path = private_file("text\n")
    assert private_file("text\n") == path != private_file("other")
    assert Path(path).read_text() == Path(path).read_text() == "text\n"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600  # noqa: PTH116 - a link of /proc


def test_a_fork_reads_it_too() -> None:
    path = private_file("text for a fork\n")
    child = os.fork()
    if not child:
        try:
            os._exit(Path(private_file("text for a fork\n")).read_text() != "text for a fork\n")
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert Path(path).exists()


def test_one_that_was_closed_is_made_again() -> None:
    path = private_file("text that goes\n")
    os.close(int(Path(path).name))
    again = private_file("text that goes\n")
    assert Path(again).read_text() == "text that goes\n"


def test_on_a_system_without_files_in_memory_none_is_left_behind(tmp_path: Path) -> None:
    code = (
        "import os; del os.memfd_create\n"
        "from dataflow_assets.secrets.private_files import private_file\n"
        "path = private_file('text')\n"
        "assert open(path).read() == 'text' and os.stat(path).st_mode & 0o777 == 0o600\n"
        "print(path)"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_contexts_check_what_they_must(authority: Authority) -> None:
    ca = pem(str(authority.ca), "x")
    for material, checks, names in (
        (Material(ca), True, True),
        (Material(ca, names=False), True, False),
        (Material(verify=False), False, False),
    ):
        found = tls.context(material)
        assert (bool(found.verify_mode), found.check_hostname) == (checks, names)
        assert found.minimum_version.name == "TLSv1_2"
