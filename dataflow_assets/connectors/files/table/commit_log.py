"""The log of one branch: each commit is a file of its own, which nobody can create twice.

`_dataflow/log/<branch>/<version>.json` holds the whole state of the branch and names the data files
that this commit adds. It is put only if it does not exist yet: of two drivers one creates the next
version, and the other finds it there and stops. The newest version is the truth; data files become
visible after it, and the next commit is made only once they are. So what a reader sees was
committed, and whoever takes the next epoch after a crash makes visible what is still missing.
A version that takes files out names each of them: whoever does so late or again meets no other.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from dataflow_assets.connectors.files.client import FilesStored, Folder, visible
from dataflow_assets.contracts import Target
from dataflow_assets.errors import TransientError
from dataflow_assets.failpoints import reach
from dataflow_assets.records.decoding import decode_json
from dataflow_assets.sdk.sink.checkpoint_store import StateChange
from dataflow_assets.sdk.sink.state import BranchState

LOGS = "_dataflow/log"
STAGED = "_dataflow/staged"
TURNS = 20  # of drivers that commit to the same branch
KEPT = 20  # versions before the newest one, for people
_VERSION = re.compile(r"/\d{12}\.json$")


@dataclass(frozen=True)
class FilesMoved:
    """A data file of a commit: where it was written, and where readers find it."""

    staged: str
    final: str


@dataclass(frozen=True)
class Commit:
    """One version of the log. `flow` and `branch` are for people, and for other flows."""

    version: int
    flow: str
    branch: str
    state: BranchState
    files: tuple[FilesMoved, ...] = ()
    removes: tuple[FilesStored, ...] = ()
    """The files that are taken away, as they were: not those that have their names later."""


Names = Callable[[int], tuple[FilesMoved, ...]]
"""By the version of a commit: the data files that it adds."""
Removed = Callable[[], tuple[FilesStored, ...]]
"""The files that a commit takes away, looked up after the files of the last one are visible."""


def name_of(target: Target) -> str:
    """A branch as part of a path: readable, and unique by a hash."""
    readable = re.sub(r"[^a-z0-9]+", "-", target.flow.lower()).strip("-")
    return f"{readable}-{hashlib.sha256(target.id.encode()).hexdigest()[:8]}"


def heads(folder: Folder) -> list[Commit]:
    """The newest commit of every branch that writes into the folder."""
    newest = {name.rpartition("/")[0]: name for name in _versions(folder, LOGS)}
    return [_read(folder, name) for name in newest.values()]


def head(folder: Folder, target: Target) -> Commit | None:
    """The newest commit of a branch; None before the first."""
    names = _versions(folder, f"{LOGS}/{name_of(target)}")
    return _read(folder, names[-1]) if names else None


def _versions(folder: Folder, below: str) -> list[str]:
    """Other files may be there as well: what a person or a tool leaves counts for nothing."""
    return [one.name for one in folder.files(below) if _VERSION.search(one.name)]


def _read(folder: Folder, name: str) -> Commit:
    return decode_json(folder.read(name), Commit)


def staged_by(target: Target, epoch: int) -> str:
    """Returns what the names of the files begin with that tasks of an epoch write."""
    return f"{STAGED}/{name_of(target)}/{epoch}-"


def rows(folder: Folder) -> tuple[FilesStored, ...]:
    """The files that readers see; folders below hold none of a sink's."""
    return tuple(one for one in visible(folder.files()) if "/" not in one.name)


class CommitLog:
    """The log of one branch, to which a driver commits."""

    def __init__(self, folder: Folder, target: Target) -> None:
        self._folder, self._target = folder, target
        self._below = f"{LOGS}/{name_of(target)}"
        self._published = 0

    def commit(
        self, step: StateChange, files: Names = lambda _: (), removes: Removed = tuple
    ) -> BranchState:
        """Makes of the newest version the next one, then its files visible.

        Raises:
            TakenOver, CheckpointRemoved: of the step, on what others have left; nothing is stored.
            TransientError: others were first each time, or staged files are gone.
        """
        target = self._target
        for _ in range(TURNS):
            last = head(self._folder, target)
            state = step(last.state if last else None)
            if last and last.version != self._published:
                self._publish(last)
            version = last.version + 1 if last else 1
            added = files(version)
            following = Commit(version, target.flow, target.branch, state, added, removes())
            if self._complete(following) and self._store(following):
                self._publish(following)
                self._folder.delete(self._name(version - KEPT))
                return state
        raise TransientError(
            f"{TURNS} times another driver committed to {self._below} first, or files below "
            f"{STAGED} were gone"
        )

    def clear(self, epoch: int) -> None:
        """Deletes what tasks of earlier epochs have left; a newer driver may have begun already."""
        for name in self._staged_files():
            written = name.rpartition("/")[2].partition("-")[0]
            if written.isdecimal() and int(written) < epoch:
                self._folder.delete(name)

    def _staged_files(self) -> set[str]:
        return {one.name for one in self._folder.files(f"{STAGED}/{name_of(self._target)}")}

    def _complete(self, commit: Commit) -> bool:
        return not commit.files or self._staged_files().issuperset(
            one.staged for one in commit.files
        )

    def _store(self, commit: Commit) -> bool:
        """Returns whether a commit has become the newest version.

        A version whose name was free because old versions are cleared away counts for nothing.
        Neither does one whose predecessor somebody has removed.
        """
        name = self._name(commit.version)
        if not self._folder.put_new(name, msgspec.json.encode(commit)):
            return False
        reach("files.committed")
        names = _versions(self._folder, self._below)
        if names[-1:] == [name] and not self._follows(commit.version, names):
            self._folder.delete(name)
            return False
        return names[-1:] == [name]

    def _follows(self, version: int, names: list[str]) -> bool:
        return version == 1 or self._name(version - 1) in names

    def _publish(self, commit: Commit) -> None:
        """Makes visible what a version adds; may be repeated."""
        if commit.removes:
            for one in {*commit.removes} & {*rows(self._folder)}:
                reach("files.removing")
                self._folder.delete(one.name)
        for moved in commit.files:
            self._folder.publish(moved.staged, moved.final)
            reach("files.published")
        self._published = commit.version

    def _name(self, version: int) -> str:
        return f"{self._below}/{version:012d}.json"
