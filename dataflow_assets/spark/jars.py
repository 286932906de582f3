"""Archives from Maven Central (Spark's jars, Kafka, PostgreSQL), exactly those of `jars.lock`.

`pinned_file` does the same for an archive that somebody else has pinned, from any repository.

Guarantee: `fetch` returns files whose sha256 is the locked one, or raises. What is already in the
cache was verified when it came, needs no network and does not load the downloader at all.

No dependency is resolved: every line of the lock is fetched by itself, because some transitive ones
of Spark's Kafka source are missing from the repository and a resolver fails on them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dataflow_assets.errors import TransientError

LOCK = Path(__file__).with_name("jars.lock")
ROOT = LOCK.parents[2]
PARALLEL = 8
_NOWHERE = "not found in remote repositories"  # as jgo says it, of every status but 200
_ABSENT = frozenset({404, 410})
_ANSWER = 30.0  # seconds that a repository has for its status
LATER = frozenset(
    {"nessie", "trino", "keycloak", "connect-worker", "connect-jdbc", "connect-debezium-mariadb"}
)


class JarError(TransientError):
    """An archive is missing or not the one that was locked; the message says which."""


class NotPublished(JarError):
    """The repository does not have the archive."""


class DownloadRefused(JarError):
    """The repository has answered with `status`, which does not say that the archive is absent."""

    def __init__(self, message: str, status: int) -> None:
        self.status = status
        super().__init__(message)


class OtherHash(JarError):
    """The archive is not the one that was pinned."""


@dataclass(frozen=True)
class Jar:
    """One line of the lock: what to fetch and what it must hash to."""

    group: str
    artifact: str
    version: str
    classifier: str
    packaging: str
    sha256: str
    repository: str = ""
    """Its URL; empty for Maven Central."""

    @property
    def name(self) -> str:
        classifier = f"-{self.classifier}" if self.classifier else ""
        return f"{self.artifact}-{self.version}{classifier}.{self.packaging}"

    @property
    def path(self) -> str:
        """Returns where a repository has the file, below its URL."""
        return "/".join((*self.group.split("."), self.artifact, self.version, self.name))

    @property
    def coordinate(self) -> str:
        """The name as the lock spells it, without empty tails."""
        tail = [self.classifier, self.packaging] if self.packaging != "jar" else [self.classifier]
        return ":".join([self.group, self.artifact, self.version, *tail]).rstrip(":")


def cache() -> Path:
    """The folder of everything fetched: DATAFLOW_CACHE, else `.cache` of the clone, or the user's.

    An installed package is in a folder that may be read-only, and that upgrades empty.
    """
    if folder := os.environ.get("DATAFLOW_CACHE"):
        return Path(folder)
    if (ROOT / "pyproject.toml").exists():
        return ROOT / ".cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "dataflow-assets")


def parse(coordinate: str, sha256: str = "") -> Jar:
    parts = coordinate.split(":")
    if not 3 <= len(parts) <= 5:
        raise JarError(f"{coordinate!r} is not group:artifact:version[:classifier][:packaging]")
    group, artifact, version, classifier, packaging = [*parts, *["", "jar"][len(parts) - 3 :]]
    return Jar(group, artifact, version, classifier, packaging, sha256)


def lock_sets() -> dict[str, list[Jar]]:
    """The lock's sets by name; a line `# set: NAME` opens one."""
    sets: dict[str, list[Jar]] = {}
    current: list[Jar] = []
    for line in LOCK.read_text().splitlines():
        if line.startswith("# set:"):
            current = sets.setdefault(line.removeprefix("# set:").split()[0], [])
        elif line and not line.startswith("#"):
            coordinate, sha256 = line.split()
            current.append(parse(coordinate, sha256))
    return sets


def fetch(set_name: str) -> list[Path]:
    """The files of one set of the lock, downloaded where they are missing."""
    sets = lock_sets()
    if set_name not in sets:
        raise JarError(f"jars.lock has no set {set_name!r}, only {', '.join(sets)}")
    jars = sets[set_name]
    folder = cache() / "jars"
    paths = [_path(folder, jar) for jar in jars]
    missing = [(jar, path) for jar, path in zip(jars, paths, strict=True) if not path.exists()]
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
        with _progress(set_name, len(missing)) as step, ThreadPoolExecutor(PARALLEL) as pool:
            for jar in pool.map(lambda pair: _download(*pair), missing):
                step(jar)
    return paths


def place(jar: Jar) -> Path:
    """Returns where the file of a pinned archive is, or is expected."""
    return _path(cache() / "jars", jar)


def pinned_file(jar: Jar, pin: str) -> Path:
    """The file of an archive that is not in the lock, downloaded where it is missing.

    Called by whoever needs the file, each time: a person may have placed it in the cache, so that
    its hash is compared also where it is there.

    Args:
        jar: with its hash.
        pin: who has pinned it, for messages.

    Raises:
        NotPublished: the repository does not have it.
        DownloadRefused: it has answered with another status: it is overloaded, or asks for a user.
        OtherHash: the file is another one, of the repository or in the cache.
        JarError: the repository cannot be reached.
    """
    path = place(jar)
    if not path.exists():
        _download(jar, path, pin)
    if (digest := _sha256(path)) != jar.sha256:
        raise OtherHash(
            f"{jar.coordinate}: the file {path} has the sha256 {digest}, {pin} says {jar.sha256}: "
            "remove the file, or place the right one there"
        )
    return path


def fetch_all() -> None:
    """Fill the cache with every set but the large ones: who starts such a server fetches them."""
    for name in lock_sets().keys() - LATER:
        fetch(name)


def _path(folder: Path, jar: Jar) -> Path:
    return folder / jar.sha256[:16] / jar.name


def _download(jar: Jar, path: Path, pin: str = LOCK.name) -> Jar:
    """Fetch, verify, and only then move into place: a file in the cache is always a good one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent.parent) as scratch:
        fetched = _resolve(jar, Path(scratch))
        digest = _sha256(fetched)
        if digest != jar.sha256:
            raise OtherHash(
                f"{jar.coordinate}: sha256 is {digest}, {pin} says {jar.sha256}; it was not "
                f"kept. Either the download or {pin} is wrong: compare both with the "
                f"publisher's checksum before you change {pin}"
            )
        fetched.chmod(0o644)
        with fetched.open("rb") as file:
            os.fsync(file.fileno())  # else the file may be empty after a loss of power
        shutil.move(fetched, path)
    return jar


def _resolve(jar: Jar, scratch: Path) -> Path:
    from jgo.maven import MavenContext

    remote = {"repository": jar.repository} if jar.repository else None
    context = MavenContext(repo_cache=scratch, local_repos=[], remote_repos=remote)
    try:
        project = context.project(jar.group, jar.artifact)
        artifact = project.at_version(jar.version).artifact(jar.classifier, jar.packaging).resolve()
    except Exception as error:  # whatever jgo's HTTP client raises
        if _NOWHERE in str(error):
            (repository,) = context.remote_repos.values()
            raise _not_downloaded(jar, f"{repository}/{jar.path}") from None
        raise JarError(f"{jar.coordinate} could not be downloaded: {error}") from error
    return Path(artifact)


def _not_downloaded(jar: Jar, url: str) -> JarError:
    import requests

    what = f"{jar.coordinate} could not be downloaded"
    try:
        with requests.get(url, stream=True, timeout=_ANSWER) as answer:
            status = answer.status_code
    except requests.RequestException as error:
        return JarError(f"{what}: {error}")
    if status in _ABSENT:
        return NotPublished(f"{what}: {url} is not there (HTTP {status})")
    return DownloadRefused(f"{what}: {url} was answered with HTTP {status}", status)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _progress(label: str, total: int) -> Iterator[Callable[[Jar], None]]:
    """A bar on a terminal, a line per file elsewhere."""
    if not sys.stderr.isatty():
        yield lambda jar: _say(f"fetched {label}: {jar.coordinate}")
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task(f"fetching {label}", total=total)
        yield lambda _jar: bar.advance(task)


def pin(coordinates: list[str]) -> list[str]:
    """Lock lines for coordinates as the repository has them now; paste them into jars.lock."""

    def line(coordinate: str) -> str:
        with tempfile.TemporaryDirectory() as scratch:
            return f"{coordinate} {_sha256(_resolve(parse(coordinate), Path(scratch)))}"

    with ThreadPoolExecutor(PARALLEL) as pool:
        return list(pool.map(line, coordinates))


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
