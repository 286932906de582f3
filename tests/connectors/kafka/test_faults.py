"""A broker behind a proxy: answers that are lost, connections that break, a broker that is gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

import devservers
from dataflow_assets.connectors.kafka import KafkaSink, producer
from dataflow_assets.contracts import OffsetSlice, Rejects, Run, Span, Target
from dataflow_assets.errors import TransientError
from tests.connectors.kafka.sinking import SOURCE, Sent, chunk
from tests.connectors.kafka.topics import committed

END_TXN = 26  # the request with which a transaction ends; Kafka's protocol, api key
PRODUCE = 0


def asks(api: int) -> Callable[[bytes], bool]:
    """Whether a request holds this one: 4 bytes of length, then the api key."""
    return lambda request: request[4:6] == api.to_bytes(2, "big")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[devservers.ProxiedKafka]:
    folder: Path = tmp_path_factory.mktemp("proxied")
    with devservers.ProxiedKafka(folder / "kafka") as server:
        yield server


@pytest.fixture
def topic(broker: devservers.ProxiedKafka, request: pytest.FixtureRequest) -> str:
    broker.proxy.restore()
    name = f"t{abs(hash(request.node.name))}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, 1)])[name].result(20)
    return name


def driven(broker: devservers.ProxiedKafka, topic: str) -> tuple[KafkaSink, Target]:
    sink = KafkaSink(brokers=(broker.proxied,), topic=topic)
    return sink, Target("default/flow", f"kafka:{topic}", "h", "src", SOURCE, Rejects("skip"))


ROWS = [Sent(b"%d" % n) for n in range(3)]
PIECE = OffsetSlice("0", 0, 3)


@pytest.mark.parametrize("api", [END_TXN, PRODUCE], ids=["commit", "produce"])
@pytest.mark.parametrize("fault", ["lose", "cut"])
def test_an_answer_that_is_lost_neither_loses_nor_doubles(
    broker: devservers.ProxiedKafka, topic: str, api: int, fault: str
) -> None:
    sink, target = driven(broker, topic)
    session = sink.open(target, Run())
    session.restart({"0": 0}, SOURCE)
    span = session.begin(Span((PIECE,)))
    writer = sink.writer(session.ticket(), PIECE)
    strike = broker.proxy.lose_answer if fault == "lose" else broker.proxy.cut
    strike(asks(api))
    writer.write(chunk(ROWS))
    receipt = writer.close(complete=False)
    assert broker.proxy.hits == 1
    assert session.finish(span, [receipt], None).totals.rows == 3  # type: ignore[arg-type]
    session.close()
    assert [m.value() for m in committed(broker.bootstrap, topic)] == [row.value for row in ROWS]


def test_a_commit_of_unknown_outcome_is_told_by_the_token(
    broker: devservers.ProxiedKafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer, "COMMIT_SECONDS", 3.0)
    sink, target = driven(broker, topic)
    session = sink.open(target, Run())
    session.restart({"0": 0}, SOURCE)
    session.begin(Span((PIECE,)))
    writer = sink.writer(session.ticket(), PIECE)
    writer.write(chunk(ROWS))
    broker.proxy.lose_answer(asks(END_TXN), times=99)
    with pytest.raises(TransientError):
        writer.close(complete=False)
    assert broker.proxy.hits >= 1
    broker.proxy.restore()
    session.close()
    again = sink.open(target, Run())
    span = again.begin(Span((PIECE,)))
    writer = sink.writer(again.ticket(), PIECE)
    writer.write(chunk(ROWS))
    receipt = writer.close(complete=False)
    assert again.finish(span, [receipt], None).totals.rows == 3  # type: ignore[arg-type]
    again.close()
    assert [m.value() for m in committed(broker.bootstrap, topic)] == [row.value for row in ROWS]


def test_a_broker_that_is_gone_in_the_middle_is_waited_for(
    broker: devservers.ProxiedKafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer, "COMMIT_SECONDS", 3.0)
    sink, target = driven(broker, topic)
    session = sink.open(target, Run())
    session.restart({"0": 0}, SOURCE)
    session.begin(Span((PIECE,)))
    writer = sink.writer(session.ticket(), PIECE)
    writer.write(chunk(ROWS[:2]))
    broker.proxy.refuse()
    with pytest.raises(TransientError, match=r"127\.0\.0\.1"):
        writer.close(complete=False)
    session.close()
    broker.proxy.restore()
    again = sink.open(target, Run())
    again.begin(Span((PIECE,)))
    writer = sink.writer(again.ticket(), PIECE)
    writer.write(chunk(ROWS))
    writer.close(complete=False)
    again.close()
    assert [m.value() for m in committed(broker.bootstrap, topic)] == [row.value for row in ROWS]
