"""Plugins of a Maven repository: fetched once, used only with the hash that the manifest says."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from pydantic import ValidationError

from dataflow_assets.connectors.kafka_connect import KafkaConnectSource
from dataflow_assets.connectors.kafka_connect.artifacts import Artifact, fetch_files
from dataflow_assets.connectors.kafka_connect.host.plugins import jars_of
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.spark import jars

CLASS = "org.apache.kafka.connect.file.FileStreamSourceConnector"


class Handler(SimpleHTTPRequestHandler):
    asked: list[str]
    status: list[int]
    """Where it has one, the answer to everything."""

    def do_GET(self) -> None:
        if self.status:
            self.send_response(self.status[-1])
            self.send_header("Retry-After", "0")  # else jgo waits for a minute after a 429
            self.end_headers()
            return
        self.asked.append(self.path.rpartition("/")[2])
        super().do_GET()

    def log_message(self, *_: Any) -> None:
        pass


class Repository:
    """A Maven repository of its own, and the cache of whoever fetches from it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.asked, self.status = folder, list[str](), list[int]()
        handler = type("Asked", (Handler,), {"asked": self.asked, "status": self.status})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=folder))
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def publish(self, name: str, data: bytes) -> str:
        """A file of the artifact g:a:1, and its hash."""
        place = self.folder / "g" / "a" / "1"
        place.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(data)
        return hashlib.sha256(data).hexdigest()

    def artifact(self, tail: str, sha256: str) -> Artifact:
        return Artifact(maven=f"g:a:1{tail}", sha256=sha256, repository=self.url)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    made = Repository(tmp_path / "repository")
    monkeypatch.setenv("DATAFLOW_CACHE", str(tmp_path / "cache"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def connector() -> bytes:
    """A jar with a connector."""
    (jar,) = (one for one in jars.fetch("connect-plugins") if one.name.startswith("connect-file"))
    return jar.read_bytes()


def test_jars_are_fetched_once_and_are_one_plugin(repository: Repository, connector: bytes) -> None:
    given = [
        repository.artifact("", repository.publish("a-1.jar", connector)),
        repository.artifact(":more", repository.publish("a-1-more.jar", zipped("x.class"))),
    ]
    for _ in range(2):
        found = fetch_files(given)
    assert found.folders == []
    name, plugin = jars_of("FileStreamSourceConnector", [], found.jars)
    assert (name, [jar.name for jar in plugin]) == (CLASS, ["a-1.jar", "a-1-more.jar"])
    fetched = [one for one in repository.asked if one.endswith(".jar")]
    assert sorted(fetched) == ["a-1-more.jar", "a-1.jar"]


def zipped(name: str, data: bytes = b"") -> bytes:
    with zipfile.ZipFile(file := io.BytesIO(), "w") as archive:
        archive.writestr(name, data)
    return file.getvalue()


def tarred(name: str, data: bytes) -> bytes:
    with tarfile.open(fileobj=(file := io.BytesIO()), mode="w:gz") as archive:
        (info := tarfile.TarInfo(name)).size = len(data)
        archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


@pytest.mark.parametrize(("packaging", "packed"), [("zip", zipped), ("tar.gz", tarred)])
def test_an_archive_of_jars_is_a_plugin(
    packaging: str, packed: Any, repository: Repository, connector: bytes
) -> None:
    data = packed("plugin/lib/connector.jar", connector)
    sha256 = repository.publish(f"a-1-plugin.{packaging}", data)
    for _ in range(2):
        found = fetch_files([repository.artifact(f":plugin:{packaging}", sha256)])
    name, plugin = jars_of(CLASS, found.folders, found.jars)
    assert (name, [jar.name for jar in plugin]) == (CLASS, ["connector.jar"])


def test_a_file_with_another_hash_is_not_used(repository: Repository) -> None:
    found = repository.publish("a-1.jar", b"jar")
    artifact = repository.artifact("", "0" * 64)
    for _ in range(2):
        with pytest.raises(
            PermanentError, match=f"plugins: g:a:1: sha256 is {found}, the manifest says 000"
        ):
            fetch_files([artifact])
    assert not jars.place(artifact.jar).exists()


def test_a_file_that_was_placed_by_hand_is_checked(repository: Repository) -> None:
    """The repository does not have it."""
    artifact = repository.artifact("", hashlib.sha256(b"jar").hexdigest())
    place = jars.place(artifact.jar)
    with pytest.raises(PermanentError, match=rf"127\S+ does not have g:a:1: .+ file at {place}, w"):
        fetch_files([artifact])
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(b"another")
    with pytest.raises(PermanentError, match=rf"{place} has the sha256 \w+, .+: remove the file"):
        fetch_files([artifact])
    place.write_bytes(b"jar")
    assert fetch_files([artifact]).jars == [str(place)]


def test_without_a_network_it_says_where_to_place_the_file(repository: Repository) -> None:
    artifact = repository.artifact("", repository.publish("a-1.jar", b"jar"))
    repository.close()
    place = jars.place(artifact.jar)
    sentence = rf"could not be fetched from http://127\S+ \(ConnectionError\): .+ file at {place}"
    with pytest.raises(TransientError, match=sentence):
        fetch_files([artifact])


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (401, "it asks for a user, or refuses this machine"),
        (403, "it asks for a user, or refuses this machine"),
        (429, "the repository is overloaded or broken: wait"),
        (500, "the repository is overloaded or broken: wait"),
        (503, "the repository is overloaded or broken: wait"),
    ],
)
def test_only_404_and_410_say_that_a_file_is_not_published(
    status: int, advice: str, repository: Repository
) -> None:
    """Whatever else is answered passes by: the flow must go on by itself then."""
    artifact = repository.artifact("", repository.publish("a-1.jar", b"jar"))
    repository.status.append(status)
    sentence = rf"g:a:1 could not be fetched from http://127\S+ \(HTTP {status}\): {advice}"
    with pytest.raises(TransientError, match=sentence):
        fetch_files([artifact])
    repository.status.append(410)
    with pytest.raises(PermanentError, match="does not have g:a:1: correct the coordinates"):
        fetch_files([artifact])
    repository.status.clear()
    assert fetch_files([artifact]).jars == [str(jars.place(artifact.jar))]


def test_what_is_in_the_cache_needs_no_network(repository: Repository) -> None:
    artifact = repository.artifact("", repository.publish("a-1.jar", b"jar"))
    fetch_files([artifact])
    repository.close()
    assert [Path(one).read_bytes() for one in fetch_files([artifact]).jars] == [b"jar"]


def test_an_archive_that_is_none_is_named(repository: Repository) -> None:
    sha256 = repository.publish("a-1.zip", b"no archive")
    with pytest.raises(PermanentError, match=r"a-1\.zip cannot be unpacked: File is not a zip"):
        fetch_files([repository.artifact("::zip", sha256)])


@pytest.mark.parametrize(("packaging", "packed"), [("zip", zipped), ("tar.gz", tarred)])
@pytest.mark.parametrize("damage", ["emptied", "changed", "removed", "added"])
def test_what_was_unpacked_is_compared_at_each_start(
    damage: str, packaging: str, packed: Any, repository: Repository
) -> None:
    """A loss of power empties files; the jars beside those of the archive are loaded, too."""
    sha256 = repository.publish(f"a-1.{packaging}", packed("plugin/a.jar", b"jar"))
    artifact = repository.artifact(f"::{packaging}", sha256)
    (folder,) = fetch_files([artifact]).folders
    plugin = Path(folder, "plugin")
    damages: dict[str, Callable[[], object]] = {
        "emptied": lambda: (plugin / "a.jar").write_bytes(b""),
        "changed": lambda: (plugin / "a.jar").write_bytes(b"other"),
        "removed": (plugin / "a.jar").unlink,
        "added": lambda: (plugin / "b.jar").write_bytes(b"other"),
    }
    damages[damage]()
    assert fetch_files([artifact]).folders == [folder]
    assert {one.name: one.read_bytes() for one in plugin.iterdir()} == {"a.jar": b"jar"}
    before = plugin.stat().st_ino
    fetch_files([artifact])
    assert plugin.stat().st_ino == before, "what is right is left alone"


def test_a_broken_jar_in_a_folder_is_named(tmp_path: Path) -> None:
    (jar := tmp_path / "a.jar").write_bytes(b"")
    with pytest.raises(PermanentError, match=rf"plugins: {jar} is not a jar \(File is not a zip"):
        jars_of(CLASS, [str(tmp_path)])


def test_an_archive_that_leads_out_of_its_folder_is_refused(repository: Repository) -> None:
    sha256 = repository.publish("a-1.tar.gz", tarred("../../out.jar", b"jar"))
    with pytest.raises(PermanentError, match="cannot be unpacked"):
        fetch_files([repository.artifact("::tar.gz", sha256)])
    assert not list(jars.cache().rglob("out.jar"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"maven": "g:a"}, "must be group:artifact:version"),
        ({"maven": "g:../a:1"}, "must be group:artifact:version"),
        ({"maven": "g:a:1::exe"}, "with the packaging jar, zip or tar.gz"),
        ({"sha256": "abc"}, "must be the sha256 of the file: 64 digits"),
        ({"sha256": None}, "Input should be a valid string"),
        ({"repository": "https://me:password@nexus"}, "must be a URL .+ without user"),
        ({"version": "1"}, "Extra inputs are not permitted"),
    ],
)
def test_what_cannot_be_pinned(
    change: dict[str, Any], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATAFLOW_FILES", str(tmp_path))
    pinned = {"maven": "g:a:1", "sha256": "0" * 64, **change}
    given = {"class": CLASS, "spool": str(tmp_path / "s"), "plugins": [pinned]}
    with pytest.raises(ValidationError, match=reason) as caught:
        KafkaConnectSource.model_validate(given)
    assert caught.value.error_count() == 1
