"""Archives are exactly those of the lock, come once, and are then had without a network."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from dataflow_assets.spark import jars
from tests import ROOT

GOOD = b"an archive"


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """A repository that has everything; the list says what was asked of it."""
    asked: list[str] = []

    def resolve(jar: jars.Jar, scratch: Path) -> Path:
        asked.append(jar.coordinate)
        (scratch / "file").write_bytes(GOOD)
        return scratch / "file"

    monkeypatch.setattr(jars, "_resolve", resolve)
    monkeypatch.setenv("DATAFLOW_CACHE", str(tmp_path / "cache"))
    return asked


def lock(monkeypatch: pytest.MonkeyPatch, folder: Path, sha256: str) -> None:
    file = folder / "jars.lock"
    file.write_text(f"# a comment\n\n# set: one (of one)\ng:a:1.0:c:zip {sha256}\n")
    monkeypatch.setattr(jars, "LOCK", file)


def test_fetched_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, published: list[str]
) -> None:
    lock(monkeypatch, tmp_path, hashlib.sha256(GOOD).hexdigest())
    (path,) = jars.fetch("one")
    assert (path.name, path.read_bytes()) == ("a-1.0-c.zip", GOOD)
    assert jars.fetch("one") == [path]
    assert published == ["g:a:1.0:c:zip"]


def test_wrong_checksum(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, published: list[str]
) -> None:
    lock(monkeypatch, tmp_path, "0" * 64)
    for _ in range(2):  # a bad file is not kept, so the second try asks again
        with pytest.raises(jars.JarError, match=r"g:a:1.0:c:zip: sha256 is .* jars.lock says 000"):
            jars.fetch("one")
    assert len(published) == 2


def test_unknown_set() -> None:
    with pytest.raises(jars.JarError, match="no set 'sprak', only spark, kafka, "):
        jars.fetch("sprak")


@pytest.mark.parametrize(
    ("coordinate", "name"),
    [
        ("g:a:1", "a-1.jar"),
        ("g:a:1:runner", "a-1-runner.jar"),
        ("g:a:1:all:tar.gz", "a-1-all.tar.gz"),
        ("g:a:1::zip", "a-1.zip"),
    ],
)
def test_coordinates(coordinate: str, name: str) -> None:
    jar = jars.parse(coordinate)
    assert (jar.name, jar.coordinate) == (name, coordinate)


def test_every_line_of_the_lock_is_pinned() -> None:
    for jar in (jar for one_set in jars.lock_sets().values() for jar in one_set):
        assert len(jar.sha256) == 64, jar


def test_a_full_cache_needs_no_downloader() -> None:
    jars.fetch("kafka")
    code = "import sys; from dataflow_assets.spark import jars as j; j.fetch('kafka')"
    code += "; sys.exit('jgo' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_installed_package_keeps_archives_in_the_users_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("DATAFLOW_CACHE", raising=False)
    monkeypatch.setattr(jars, "ROOT", tmp_path / "site-packages")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "mine"))
    assert jars.cache() == tmp_path / "mine" / "dataflow-assets"
    monkeypatch.setattr(jars, "ROOT", ROOT)
    assert jars.cache() == ROOT / ".cache"
