"""Objects are followed by list and watch, and no answer makes one disappear that is there."""

from __future__ import annotations

import threading

import pytest

from dataflow_assets.errors import TransientError
from dataflow_assets.kubernetes.collection import Collection
from dataflow_assets.secrets.cluster_api import Answer
from tests.kubernetes.objects import FLOWS, flow
from tests.kubernetes.stand_in import StandIn, event, items

GONE = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}}


class Changes:
    """How often a collection has said that something changed, and what it has said."""

    def __init__(self) -> None:
        self.count = 0
        self.lines: list[str] = []

    def add(self) -> None:
        self.count += 1


@pytest.fixture
def changes() -> Changes:
    return Changes()


@pytest.fixture
def followed(api: StandIn, changes: Changes) -> Collection:
    return Collection(FLOWS, "shop", changes.add, changes.lines.append)


def names(collection: Collection) -> list[str]:
    return sorted(collection.objects or ())


def test_a_list_of_several_pages(api: StandIn, followed: Collection) -> None:
    api.lists = [items(flow("s", "a"), more="token"), items(flow("s", "b"), version="9")]
    assert followed.list_objects() == "9"
    assert names(followed) == ["a", "b"]
    assert "continue=token" in api.requests[1][1]


def test_a_watch_goes_on_after_what_it_has_seen(
    api: StandIn, followed: Collection, changes: Changes
) -> None:
    api.lists = [items(flow("s", "a"))]
    followed.list_objects()
    before = changes.count
    told = flow("s", "a") | {"status": {"phase": "Running"}}
    api.watches = [
        [
            event("ADDED", flow("s", "b"), "8"),
            event("MODIFIED", told, "9"),
            event("DELETED", flow("s", "b"), "10"),
            event("BOOKMARK", {"kind": "DataFlow"}, "12"),
        ]
    ]
    assert followed.watch_objects("7") == "12"
    assert names(followed) == ["a"]
    assert followed.objects is not None
    assert followed.objects["a"].status == {"phase": "Running"}
    assert changes.count - before == 2  # a status changes no flow
    assert "resourceVersion=7" in api.requests[-1][1]


@pytest.mark.parametrize("answer", [Answer(200, GONE), Answer(410, {"message": "too old"})])
def test_a_version_that_is_forgotten_is_listed_again(
    answer: Answer, api: StandIn, followed: Collection
) -> None:
    api.lists, api.watches = [items(flow("s", "a"))], [[answer]]
    followed.list_objects()
    assert followed.watch_objects("7") == ""
    api.lists = [items(flow("s", "c"), version="90")]
    assert followed.list_objects() == "90"
    assert names(followed) == ["c"]


def test_a_line_that_is_cut_off_ends_the_watch_alone(api: StandIn, followed: Collection) -> None:
    api.lists = [items(flow("s", "a"))]
    followed.list_objects()
    api.watches = [[event("ADDED", flow("s", "b"), "8"), Answer(200, {})]]
    assert followed.watch_objects("7") == "8"
    assert names(followed) == ["a", "b"]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(403, {"message": "User x cannot list"}), "cannot be read .*403 User x cannot list"),
        (Answer(404, {}), "dataflows of namespace shop: .* does not know this kind: `dataflow k8s"),
        (Answer(500, {}), "cannot be read from the Kubernetes API: 500"),
    ],
)
def test_a_refusal_takes_nothing_away(
    answer: Answer, words: str, api: StandIn, followed: Collection
) -> None:
    api.lists = [items(flow("s", "a")), items(flow("s", "b"), more="token"), answer]
    followed.list_objects()
    with pytest.raises(TransientError, match=words):
        followed.list_objects()
    assert names(followed) == ["a"]
    api.watches = [[answer]]
    with pytest.raises(TransientError, match=words):
        followed.watch_objects("7")
    assert names(followed) == ["a"]


def test_an_answer_that_is_none_ends_no_thread(
    api: StandIn, followed: Collection, changes: Changes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else would follow the objects."""
    ended = threading.Event()
    monkeypatch.setattr(ended, "wait", lambda _: ended.set() if not api.lists else False)
    api.lists = [items(flow("s", "a"), {"kind": "DataFlow"}), items(flow("s", "b"), version="")]
    followed.run(ended)
    assert names(followed) == ["b"]
    assert "KeyError" in changes.lines[0]


def test_a_refusal_is_said_once_while_it_lasts(
    api: StandIn, followed: Collection, changes: Changes, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()

    def wait(_: float) -> bool:
        if len(api.lists) == 1:
            ended.set()
        return ended.is_set()

    monkeypatch.setattr(ended, "wait", wait)
    api.lists = [Answer(500, {}), Answer(500, {}), Answer(500, {}), items()]
    followed.run(ended)
    assert len(changes.lines) == 1
    assert changes.lines[0].endswith("500; it is tried again every 5 s")
    assert followed.objects is None
