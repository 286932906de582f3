"""Plugins by their coordinates in a Maven repository, pinned by their hashes."""

from __future__ import annotations

import fcntl
import hashlib
import re
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, NamedTuple, cast

from pydantic import AfterValidator, WithJsonSchema

from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.sdk.durable_files import sync
from dataflow_assets.spark import jars
from dataflow_assets.spec import Spec

if TYPE_CHECKING:
    from io import BufferedIOBase

_PART = r"[A-Za-z0-9_][\w.-]*"
_COORDINATES = rf"^{_PART}:{_PART}:{_PART}(:[\w.-]*(:(jar|zip|tar\.gz))?)?$"
_HASH = r"^[0-9a-f]{64}$"
_REPOSITORY = r"^https?://[^\s@]+$"
_REFUSED = frozenset({401, 403})
_BROKEN = (zipfile.BadZipFile, tarfile.TarError, EOFError)


def _like(pattern: str, sentence: str) -> tuple[AfterValidator, WithJsonSchema]:
    """For an option of this form, which else is answered with a sentence."""

    def check(text: str) -> str:
        if re.fullmatch(pattern, text) is None:
            raise ValueError(sentence)
        return text

    return AfterValidator(check), WithJsonSchema({"type": "string", "pattern": pattern})


class Artifact(Spec):
    """A jar, or an archive of jars, of a Maven repository: fetched once, and checked by its hash.

    No dependency is resolved. An archive is a plugin of its own; all jars together are one plugin.
    """

    maven: Annotated[
        str,
        *_like(
            _COORDINATES,
            "must be group:artifact:version[:classifier][:packaging], with the packaging jar, zip "
            "or tar.gz",
        ),
    ]
    """`group:artifact:version[:classifier][:packaging]`; the packaging is `jar`, `zip` or `tar.gz`,
    such as `io.debezium:debezium-connector-postgres:3.7.0.Final:plugin:tar.gz`."""
    sha256: Annotated[
        str, *_like(_HASH, "must be the sha256 of the file: 64 digits 0-9 and a-f, in quotes")
    ]
    """Hash of the file: another file is never used."""
    repository: (
        Annotated[
            str,
            *_like(_REPOSITORY, "must be a URL that begins with https:// or http://, without user"),
        ]
        | None
    ) = None
    """URL of the Maven repository; Maven Central by default."""

    @property
    def jar(self) -> jars.Jar:
        parsed = jars.parse(self.maven, self.sha256)
        return replace(parsed, repository=(self.repository or "").rstrip("/"))


class ConnectPlaced(NamedTuple):
    """Places of plugins on this machine. `folders`: of one plugin each; `jars`: of one more."""

    folders: list[str]
    jars: list[str]


def fetch_files(artifacts: Sequence[Artifact]) -> ConnectPlaced:
    """The files of artifacts, fetched where they are missing.

    Called by the driver before it starts a connector: each hash is compared each time, those of
    the files inside of archives with what was unpacked.

    Raises:
        PermanentError: the repository does not have a file, or a file is another one.
        TransientError: a repository cannot be reached, or answers with another status than 404.
    """
    files = [(one, _file(one)) for one in artifacts]
    folders = [str(_unpack(file)) for one, file in files if one.jar.packaging != "jar"]
    return ConnectPlaced(folders, [str(file) for one, file in files if one.jar.packaging == "jar"])


def _file(artifact: Artifact) -> Path:
    jar, where = artifact.jar, artifact.repository or "Maven Central"
    by_hand = f"or place the file at {jars.place(jar)}, whose hash is checked"
    try:
        return jars.pinned_file(jar, "the manifest")
    except jars.OtherHash as error:
        raise PermanentError(f"plugins: {error}") from None
    except jars.NotPublished:
        raise PermanentError(
            f"plugins: {where} does not have {jar.coordinate}: correct the "
            f"coordinates or the repository, {by_hand}"
        ) from None
    except jars.DownloadRefused as error:
        raise TransientError(
            f"plugins: {jar.coordinate} could not be fetched from {where} "
            f"(HTTP {error.status}): {_advice(error.status)}, {by_hand}"
        ) from None
    except jars.JarError as error:
        reason = type(error.__cause__ or error).__name__
        raise TransientError(
            f"plugins: {jar.coordinate} could not be fetched from {where} "
            f"({reason}): check the network, {by_hand}"
        ) from None


def _advice(status: int) -> str:
    if status in _REFUSED:
        return "it asks for a user, or refuses this machine: name a repository that needs no user"
    return "the repository is overloaded or broken: wait"


def _unpack(archive: Path) -> Path:
    """The folder with exactly an archive's files, unpacked where one is missing or another one."""
    folder = archive.with_name(f"{archive.name}.unpacked")
    with archive.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # another process may do the same
        try:
            if dict(_members(archive)) != dict(_files(folder)):
                _replace(folder, archive)
        except _BROKEN as error:
            raise PermanentError(f"plugins: {archive} cannot be unpacked: {error}") from None
    return folder


def _members(archive: Path) -> Iterator[tuple[Path, str]]:
    """(path, hash) of each file in an archive."""
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as packed:
            for one in packed.infolist():
                if not one.is_dir():
                    with packed.open(one) as file:
                        yield Path(one.filename), _hash(file)
        return
    with tarfile.open(archive) as packed:
        for member in packed:
            if (data := packed.extractfile(member)) is not None:
                yield Path(member.name), _hash(data)


def _files(folder: Path) -> Iterator[tuple[Path, str]]:
    """(path, hash) of each file in a folder, which need not exist."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                yield path.relative_to(folder), _hash(file)


def _hash(file: IO[bytes]) -> str:
    return hashlib.file_digest(cast("BufferedIOBase", file), "sha256").hexdigest()


def _replace(folder: Path, archive: Path) -> None:
    """The folder is there as a whole, also after a loss of power."""
    with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
        _extract(archive, fresh := Path(scratch, "fresh"))
        for path in (*fresh.rglob("*"), fresh):
            sync(path)
        if folder.exists():
            folder.rename(Path(scratch, "old"))
        fresh.rename(folder)
    sync(folder.parent)


def _extract(archive: Path, into: Path) -> None:
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(into)  # noqa: S202 - its hash is pinned, names lead nowhere else
    else:
        with tarfile.open(archive) as packed:
            packed.extractall(into, filter="data")
