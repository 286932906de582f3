"""A broker that comes back without the end of a log, which then grows past what was read."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

import devservers
from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.connectors.kafka.source import data_loss
from dataflow_assets.connectors.kafka.source.session import KafkaSourceSession
from dataflow_assets.contracts import Limit, OffsetSlice
from dataflow_assets.errors import PermanentError

READ = {"0": 100, "1": 100}


def send(bootstrap: str, values: range) -> None:
    """To each of the two partitions."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        for partition in (0, 1):
            producer.produce("t", b"%d" % value, partition=partition)
    assert producer.flush(30) == 0


def cut(folder: Path, size: int) -> None:
    """The log of partition 0 loses what was appended behind these bytes, and its indexes."""
    (log,) = folder.glob("data/t-0/*.log")
    with log.open("r+b") as file:
        file.truncate(size)
    for index in folder.glob("data/t-0/*index"):
        index.unlink()


def test_other_records_under_offsets_that_were_read_are_a_loss(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = devservers.Kafka(tmp_path / "kafka", heap="256m")
    live: list[KafkaSourceSession] = []

    def opened(group: str, **options: str) -> KafkaSourceSession:
        given = {"brokers": (server.bootstrap,), "topic": "t", "consumer_group": group}
        source = KafkaSource.model_validate(given | options)
        live.append(KafkaSourceSession(source, f"default/{group}"))
        return live[-1]

    def read(session: KafkaSourceSession) -> KafkaSourceSession:
        assert session.plan({"0": 0, "1": 0}, Limit()).upto == READ
        session.acknowledge(READ)
        return session

    def stopped(group: str) -> None:
        """The group's coordinator, which is new, may not take offsets yet."""
        deadline = time.monotonic() + 30
        while True:
            read(opened(group)).close()
            session = opened(group)
            if session._broker.committed_offsets(group, session.topic.now()):
                return
            assert time.monotonic() < deadline

    try:
        server.start()
        admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("t", 2)])["t"].result(30)
        send(server.bootstrap, range(50))
        (log,) = server.folder.glob("data/t-0/*.log")
        size = log.stat().st_size
        send(server.bootstrap, range(50, 100))
        running = read(opened("running"))
        assert (
            opened("again").plan({"0": 0, "1": 0}, Limit()).upto == READ
        )  # tells its group nothing
        for group in ("stopped", "careless"):
            stopped(group)
        server.stop()
        cut(server.folder, size)
        server.start()
        send(server.bootstrap, range(1000, 1100))
        _refused(lambda: running.plan(READ, Limit()))  # in the middle of a run
        _refused(lambda: opened("again").plan(READ, Limit()))  # by the next attempt of its process
        data_loss._seen.clear()
        _refused(lambda: opened("stopped").plan(READ, Limit()))  # by the next process
        before = opened("stopped").plan({"0": 50, "1": 100}, Limit())
        assert before.slices == (OffsetSlice("0", 50, 150), OffsetSlice("1", 100, 200))
        with caplog.at_level(logging.WARNING):
            careless = opened("careless", on_data_loss="continue")
            assert careless.plan(READ, Limit()).slices[0] == OffsetSlice("0", 100, 150)
        assert "going on without (onDataLoss)" in caplog.text
        careless.acknowledge({"0": 150, "1": 200})
        careless.close()
        assert opened("careless").plan({"0": 150, "1": 200}, Limit()).empty
    finally:
        for session in live:
            session.close()
        server.stop()


def _refused(plan: Callable[[], object]) -> None:
    with pytest.raises(PermanentError) as caught:
        plan()
    assert (
        "topic t: partition 0 was cut off at offset 50, below 100, which comes next: a broker has "
        "lost records that were read" in str(caught.value)
    )
    assert "partition 1" not in str(caught.value)
    assert "dataflow reset" in str(caught.value)
