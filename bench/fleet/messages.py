"""`python -m bench.fleet.messages`: the one process that sends to all topics of a fleet.

Each message holds its number within its topic and the time at which it was produced. SIGTERM ends
it; then it writes down how many messages of each topic the broker has acknowledged.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from typing_extensions import override

from dataflow_assets.spark.process import Server

TICK = 0.05  # seconds
BODY = b'{"id":%d,"produced":%.6f,"customer":"c-%d","city":"Berlin"}'
SETTINGS = {"acks": "all", "enable.idempotence": True, "linger.ms": 5, "log_level": 3}


def body(number: int, produced: float) -> bytes:
    """Message `number` of a topic."""
    return BODY % (number, produced, number % 1_000)


@dataclass(eq=False, kw_only=True)
class Sender(Server):
    """The process, until it is stopped; `times` bounds the messages of each topic."""

    name = "producer"
    port_names = ()

    bootstrap: str
    topics: Sequence[str]
    times: int | None = None

    @property
    def sent(self) -> Mapping[str, int]:
        """How many messages each topic holds, once the process has ended."""
        found: dict[str, int] = json.loads(self._result.read_text())
        return found

    @override
    def endpoints(self) -> dict[str, str]:
        return {"bootstrap": self.bootstrap}

    @override
    def prepare(self) -> None:
        self._result.unlink(missing_ok=True)
        order = {"bootstrap": self.bootstrap, "topics": list(self.topics), "times": self.times}
        self._order.write_text(json.dumps({**order, "result": str(self._result)}))

    @override
    def command(self) -> list[str]:
        return [sys.executable, "-m", "bench.fleet.messages", str(self._order)]

    @override
    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": str(Path(__file__).parents[2])}

    @override
    def ready(self) -> bool:
        return True

    @property
    def _order(self) -> Path:
        return self.folder / "order.json"

    @property
    def _result(self) -> Path:
        return self.folder / "sent.json"


def turns(topics: int, times: int | None) -> Iterator[tuple[float, int, int]]:
    """When, to which topic, which number: each topic once a second, evenly over the second."""
    for number in count() if times is None else range(times):
        for topic in range(topics):
            yield number + topic / topics, topic, number


def main(order: Mapping[str, Any]) -> None:
    """Sends until the end is asked for, then writes down what was acknowledged."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    producer = Producer({"bootstrap.servers": order["bootstrap"], **SETTINGS})
    sent: Counter[str] = Counter(dict.fromkeys(order["topics"], 0))
    _send(producer, order, sent, ended)
    producer.flush()
    Path(order["result"]).write_text(json.dumps(sent))


def _send(
    producer: Producer, order: Mapping[str, Any], sent: Counter[str], ended: threading.Event
) -> None:
    def acknowledged(error: object, message: Any) -> None:
        if error is None:
            sent[message.topic()] += 1

    began, topics = time.time(), order["topics"]
    for due, topic, number in turns(len(topics), order["times"]):
        while time.time() < began + due:
            producer.poll(0)
            if ended.wait(TICK):
                return
        produced = body(number, time.time())
        producer.produce(topics[topic], produced, on_delivery=acknowledged)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
