"""`dataflow k8s watch`: objects become files of a location's folder, and get their status."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

from dataflow_assets.assets.standings import Standing
from dataflow_assets.errors import TransientError, describe_unexpected
from dataflow_assets.flow import Flow
from dataflow_assets.kubernetes.collection import Collection
from dataflow_assets.kubernetes.crds import resources
from dataflow_assets.kubernetes.folder import COMPLETE, mirror_objects, replace_text
from dataflow_assets.kubernetes.objects import CustomResource
from dataflow_assets.kubernetes.outcome import describe
from dataflow_assets.kubernetes.reports import release, report
from dataflow_assets.manifests.load import Loaded
from dataflow_assets.manifests.watched import Watched

LOOK_SECONDS = 10.0  # between two looks at what Dagster knows

Standings = Callable[[Sequence[Flow]], Mapping[str, Standing]]


class Watcher:
    """The objects of some namespaces, and the folder with their manifests."""

    def __init__(
        self,
        folder: Path,
        namespaces: Sequence[str],
        standings: Standings | None,
        say: Callable[[str], None],
    ) -> None:
        """`standings` says how flows stand; None: nothing is written to the API server."""
        self._folder, self._standings, self._say = folder, standings, say
        self._changed = threading.Event()
        self._collections = [
            Collection(resource, namespace, self._changed.set, say)
            for namespace in namespaces
            for resource in resources()
        ]
        self._loaded = Watched([folder])
        self._problem = ""

    def run(self, ended: threading.Event) -> None:
        """Follows the objects until `ended`. Raises OSError where the folder cannot be written."""
        for one in self._collections:
            threading.Thread(target=one.run, args=(ended,), daemon=True).start()
        while not ended.is_set():
            self._changed.wait(LOOK_SECONDS)
            self._changed.clear()
            self.look()

    def wake(self) -> None:
        """Lets `run` see that it has ended."""
        self._changed.set()

    def look(self) -> None:
        """Makes files of what is known, then writes statuses that are not true any more.

        What a collection has is not known before its first list: then its files stay as they are.
        """
        known = [(one, one.objects) for one in self._collections if one.objects is not None]
        for one, objects in known:
            for line in mirror_objects(self._folder, one.resource, one.namespace, objects.values()):
                self._say(line)
        if len(known) == len(self._collections):
            replace_text(self._folder / COMPLETE, "")
        if self._standings is None:
            return
        loaded = self._loaded()
        try:
            stands = self._standings(loaded.flows)
        except Exception as error:  # noqa: BLE001 - storages raise many kinds; the next look may do
            self._complain(f"DAGSTER_HOME cannot be read: {type(error).__name__}: {error}")
            return
        problem = ""
        for each in chain.from_iterable(objects.values() for _, objects in known):
            try:
                self._report(each, loaded, stands)
            except TransientError as error:
                problem = str(error)
            except Exception as error:  # noqa: BLE001 - whatever it is, the other objects go on
                problem = f"{each.namespace}/{each.name}: {describe_unexpected(error)}"
        self._complain(problem)

    def _report(self, one: CustomResource, loaded: Loaded, stands: Mapping[str, Standing]) -> None:
        file = one.file(self._folder)
        flow = next((flow for flow in loaded.flows if flow.file == file), None)
        standing = stands.get(flow.id, Standing()) if flow else Standing()
        findings = loaded.broken_files.get(str(file), ())
        status = describe(one, flow, findings, standing, datetime.now(UTC))
        if report(one, status):
            self._say(f"{one.namespace}/{one.name}: {status.phase}: {status.message}")
        if one.is_deleted and release(one):
            self._say(f"{one.namespace}/{one.name}: its finalizers are taken off")

    def _complain(self, problem: str) -> None:
        if problem and problem != self._problem:
            self._say(f"statuses cannot be written, and are tried again: {problem}")
        self._problem = problem
