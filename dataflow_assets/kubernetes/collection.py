"""The objects of one kind in one namespace, followed through the API by list and watch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from dataflow_assets.errors import TransientError, describe_unexpected
from dataflow_assets.kubernetes.crds import Resource
from dataflow_assets.kubernetes.objects import CustomResource
from dataflow_assets.secrets.cluster_api import Answer, ask, follow

WATCH_SECONDS = 60  # after which a watch is asked for again
SILENT_SECONDS = 75.0  # after which its connection counts as dead
PAUSE_SECONDS = 0.2  # between two requests that the API server has answered
AGAIN_SECONDS = 5.0  # until the next attempt after an error
PAGE = 500


class Collection:
    """The API server's objects, as far as they are known here.

    `run` is a thread's; all else may be asked by others meanwhile.
    """

    def __init__(
        self,
        resource: Resource,
        namespace: str,
        changed: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        """`changed` is called when a manifest is new, another one or gone; `say` with errors."""
        self.resource, self.namespace = resource, namespace
        self.objects: Mapping[str, CustomResource] | None = None
        """By their names; None until they have been listed once."""
        self._changed, self._say = changed, say
        self._problem = ""

    def run(self, ended: threading.Event) -> None:
        """Follows the objects until `ended`; what goes wrong is said once, and tried again."""
        while not ended.is_set():
            try:
                version = self.list_objects()
                while version and not ended.wait(PAUSE_SECONDS):
                    version = self.watch_objects(version)
                ended.wait(PAUSE_SECONDS)
            except Exception as error:  # noqa: BLE001 - the thread goes on, whatever was answered
                known = isinstance(error, TransientError)
                self._complain(str(error) if known else describe_unexpected(error))
                ended.wait(AGAIN_SECONDS)

    def list_objects(self) -> str:
        """Lists all objects, and returns the version of the list.

        Raises TransientError where they cannot be listed: those that are known stay.
        """
        found: dict[str, CustomResource] = {}
        query: dict[str, Any] = {"limit": PAGE}
        while True:
            answer = ask("GET", f"{self.resource.path(self.namespace)}?{urlencode(query)}")
            if not answer.is_ok:
                raise TransientError(self._refusal(answer))
            for document in answer.document.get("items") or ():
                one = CustomResource(self.resource, document)
                found[one.name] = one
            metadata = answer.document.get("metadata") or {}
            if not metadata.get("continue"):
                break
            query["continue"] = metadata["continue"]
        self._problem = ""
        self.objects = found
        self._changed()
        return str(metadata.get("resourceVersion") or "")

    def watch_objects(self, version: str) -> str:
        """Takes over changes since a version for a minute, and returns the version after them.

        Returns:
            Nothing where the API server has forgotten the version: list the objects again.

        Raises:
            TransientError: where it cannot be asked, or refuses.
        """
        query = {"watch": 1, "resourceVersion": version, "timeoutSeconds": WATCH_SECONDS}
        path = f"{self.resource.path(self.namespace)}?{urlencode(query)}&allowWatchBookmarks=true"
        for answer in follow(path, SILENT_SECONDS):
            if answer.code == HTTPStatus.GONE:
                return ""
            if not answer.is_ok:
                raise TransientError(self._refusal(answer))
            event, document = answer.document.get("type"), answer.document.get("object") or {}
            if event == "ERROR":
                if document.get("code") == HTTPStatus.GONE:
                    return ""
                raise TransientError(self._refusal(Answer(document.get("code", 0), document)))
            if event is None:  # a line that was cut off with its connection
                break
            version = str(document["metadata"]["resourceVersion"])
            if event != "BOOKMARK":
                self._take(str(event), CustomResource(self.resource, document))
        return version

    def _take(self, event: str, one: CustomResource) -> None:
        before = self.objects or {}
        others = {name: other for name, other in before.items() if name != one.name}
        self.objects = others if event == "DELETED" else {**others, one.name: one}
        if _content(before.get(one.name)) != _content(self.objects.get(one.name)):
            self._changed()

    def _refusal(self, answer: Answer) -> str:
        where = f"{self.resource.plural} of namespace {self.namespace}"
        if answer.code == HTTPStatus.NOT_FOUND:
            return (
                f"{where}: the Kubernetes API does not know this kind: `dataflow k8s crds | "
                "kubectl apply -f -` tells it"
            )
        return f"{where} cannot be read from the Kubernetes API: {answer.reason}"

    def _complain(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            self._say(f"{problem}; it is tried again every {AGAIN_SECONDS:.0f} s")


def _content(one: CustomResource | None) -> tuple[str, bool, int | None] | None:
    """Returns what may change a flow, which a new status does not."""
    return None if one is None else (one.manifest, one.is_deleted, one.generation)
