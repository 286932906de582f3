"""The log of one branch: each commit is a file of its own, which nobody can create twice.

`_dataflow/log/<branch>/<version>.json` holds the whole state of the branch and names the data files
that this commit adds. It is put only if it does not exist yet: of two drivers one creates the next
version, and the other finds it there and stops. The newest version is the truth; data files become
visible after it, and the next commit is made only once they are. So what a reader sees was
committed, and whoever opens the log after a crash makes visible what is still missing.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from dataflow_assets.connectors.files.client import Folder, visible
from dataflow_assets.contracts import Run, Target
from dataflow_assets.errors import TakenOver, TransientError
from dataflow_assets.failpoints import reach
from dataflow_assets.sdk.checkpoint import BranchState, removed, taken_over

LOGS = "_dataflow/log"
STAGED = "_dataflow/staged"
TURNS = 20  # of drivers that open the same branch
KEPT = 20  # versions before the newest one, for people


@dataclass(frozen=True)
class Moved:
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
    files: tuple[Moved, ...] = ()
    empties: bool = False
    """Every file that readers see is taken away."""


def name_of(target: Target) -> str:
    """A branch as part of a path: readable, and unique by a hash."""
    readable = re.sub(r"[^a-z0-9]+", "-", target.flow.lower()).strip("-")
    return f"{readable}-{hashlib.sha256(target.id.encode()).hexdigest()[:8]}"


def heads(folder: Folder) -> list[Commit]:
    """The newest commit of every branch that writes into the folder."""
    newest = {one.name.rpartition("/")[0]: one.name for one in folder.files(LOGS)}
    return [_read(folder, name) for name in newest.values()]


def head(folder: Folder, target: Target) -> Commit | None:
    """The newest commit of a branch; None before the first."""
    files = folder.files(f"{LOGS}/{name_of(target)}")
    return _read(folder, files[-1].name) if files else None


def _read(folder: Folder, name: str) -> Commit:
    return msgspec.json.decode(folder.read(name), type=Commit)


class CommitLog:
    """The log of one branch, and the newest version that this driver knows."""

    def __init__(self, folder: Folder, target: Target) -> None:
        self._folder, self._target = folder, target
        self._below = f"{LOGS}/{name_of(target)}"
        self.newest = Commit(0, target.flow, target.branch, BranchState())

    def take(self, run: Run) -> None:
        """Takes the next epoch, behind whatever another driver commits meanwhile."""
        for _ in range(TURNS):
            self.newest = head(self._folder, self._target) or self.newest
            self.publish()
            with suppress(TakenOver):
                self.append(self.newest.state.taken(run))
                return
        raise TransientError(f"{TURNS} times another driver committed to {self._below} first")

    def append(
        self, state: BranchState, files: tuple[Moved, ...] = (), *, empties: bool = False
    ) -> None:
        """Makes the next version, then its files visible.

        Raises:
            TakenOver: the next version is another driver's.
            CheckpointRemoved: the version that this one follows is gone.
        """
        target, version = self._target, self.newest.version + 1
        commit = Commit(version, target.flow, target.branch, state, files, empties)
        name = self._name(version)
        if not self._folder.put_new(name, msgspec.json.encode(commit)):
            self.look()
            raise TransientError(f"version {version} of {self._below} was made meanwhile")
        reach("files.committed")
        self._check_last(name)
        self.newest = commit
        self.publish()
        self._folder.delete(self._name(version - KEPT))

    def look(self) -> None:
        """Raises TakenOver or CheckpointRemoved where the newest version is not the known one."""
        known = self._name(self.newest.version)
        names = [one.name for one in self._folder.files(self._below)]
        if names and names[-1] > known:
            raise self._taken_over(names[-1])
        if self.newest.version and known not in names:
            raise removed(self._target.flow, self._below)

    def publish(self) -> None:
        """Makes visible what the newest version adds; may be repeated."""
        if self.newest.empties:
            for one in visible(self._folder.files()):
                self._folder.delete(one.name)
        for moved in self.newest.files:
            self._folder.publish(moved.staged, moved.final)
            reach("files.published")

    def _check_last(self, name: str) -> None:
        """A version whose name was free because old versions are cleared away counts for nothing.

        Neither does one whose predecessor somebody has removed.
        """
        names = [one.name for one in self._folder.files(self._below)]
        if names[-1] != name:
            raise self._taken_over(names[-1])
        known = self.newest.version
        if known and self._name(known) not in names:
            self._folder.delete(name)
            raise removed(self._target.flow, self._below)

    def _taken_over(self, newest: str) -> Exception:
        owner = _read(self._folder, newest).state.checkpoint.run
        return taken_over(self._target.flow, owner)

    def _name(self, version: int) -> str:
        return f"{self._below}/{version:012d}.json"
