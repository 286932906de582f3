"""Who is asked together with whom, where one of them cannot even tell."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Any, cast

import pytest

from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.contracts import Positions, SourceSession
from dataflow_assets.contracts.looking import EndsOfMany
from dataflow_assets.errors import DataflowError, PermanentError
from dataflow_assets.runs import questions
from dataflow_assets.runs.news import Looks, OpenSource, SourceEnd
from dataflow_assets.runs.questions import Question, group_ends


class Opened(EndsOfMany):
    """Sessions whose connections go on, whatever becomes of the files they were made with."""

    @classmethod
    def ends_together(cls, sessions: Sequence[Any]) -> list[Positions | DataflowError]:
        return [{"0": 5} for _ in sessions]


def topic(name: str, **more: Any) -> KafkaSource:
    return KafkaSource.model_validate({"brokers": ["h:1"], "topic": name, **more})


@pytest.fixture
def gone(tmp_path: Path) -> KafkaSource:
    """A topic whose certificate has been removed since its session was opened."""
    return topic("gone", tls={"caFile": str(tmp_path / "ca.pem")})


def test_a_certificate_that_is_gone_holds_up_no_other_flow(gone: KafkaSource) -> None:
    ends = {"one": topic("one"), "gone": gone, "two": topic("two")}
    assert [[*names] for names in group_ends(ends.items()).values()] == [["one", "two"], ["gone"]]
    sources = {
        name: OpenSource(source, cast("SourceSession", Opened()), ({"0": 3},))
        for name, source in ends.items()
    }
    found = Looks().ends_together(sources)
    assert found == dict.fromkeys(ends, SourceEnd({"0": 5}, (True,)))


def test_where_it_must_be_opened_the_error_is_its_own(gone: KafkaSource) -> None:
    ((_, ends),) = group_ends({"gone": gone}.items()).items()
    answers = Question(
        ends, lambda: KafkaSource.open_together(cast("dict[str, KafkaSource]", ends))
    ).answers()
    error = answers["gone"]
    assert isinstance(error, PermanentError)
    assert "tls.caFile" in str(error)


def test_a_server_that_does_not_answer_a_first_question_is_silent_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(questions, "KNOCK", 0.2)
    ends, never = {"one": topic("one"), "two": topic("two")}, Event()
    answers = Question(ends, lambda: dict.fromkeys(ends, 5), never.wait).answers(600.0)
    assert [str(answers[name]).partition(";")[0] for name in ends] == [
        "kafka/h-1/one (h:1): no answer for 0.2 seconds",
        "kafka/h-1/two (h:1): no answer for 0.2 seconds",
    ]


def test_a_server_that_answers_the_first_question_may_take_longer_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(questions, "KNOCK", 0.2)
    ends = {"one": topic("one")}

    def slowly() -> dict[str, int]:
        time.sleep(0.6)
        return {"one": 5}

    def refused() -> None:
        raise ConnectionRefusedError

    for knock in (refused, lambda: None):
        assert Question(ends, slowly, knock).answers(30.0) == {"one": 5}
