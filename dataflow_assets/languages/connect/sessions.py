"""The driver's side of taking over: what is inherited, and that nothing is left behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from io import BytesIO

from fastavro import schemaless_writer
from typing_extensions import override

from dataflow_assets.connectors.iceberg.sink.session import IcebergSinkSession
from dataflow_assets.connectors.kafka.client import KafkaBroker
from dataflow_assets.connectors.kafka.options import KafkaSourceOptions
from dataflow_assets.connectors.kafka.peek import Peek
from dataflow_assets.connectors.kafka.source.session import KafkaSourceSession
from dataflow_assets.connectors.kafka.source.start_offsets import MARK
from dataflow_assets.connectors.kafka.topics import describe
from dataflow_assets.connectors.mysql.sink.session import MysqlSinkSession
from dataflow_assets.connectors.postgresql.sink.session import PostgresqlSinkSession
from dataflow_assets.contracts import Positions
from dataflow_assets.errors import PermanentError, TransientError, raise_if_error
from dataflow_assets.languages.promises import TakesOver

_FILES = (b"data_files", b"dataFiles")
"""In the schema that an event about written files has in front, in new versions and old ones."""


class _GoesOn(TakesOver):
    @override
    def inheritance(self) -> Positions:
        return {}  # the consumer group alone knows from where


class JdbcTableSession(_GoesOn, PostgresqlSinkSession):
    """Goes on in a table that a JDBC sink has filled."""


class MysqlJdbcTableSession(_GoesOn, MysqlSinkSession):
    """Goes on in a table of MySQL that a JDBC sink has filled."""


class LakeTableSession(_GoesOn, IcebergSinkSession):
    """Goes on in a table that Iceberg's sink has filled."""


class LakeTopicSession(KafkaSourceSession):
    """Takes over once all files that the connector has written are in its tables."""

    def __init__(
        self, source: KafkaSourceOptions, flow: str, control_topic: str, members_group: str
    ) -> None:
        super().__init__(source, flow)
        self._control_topic, self._members_group = control_topic, members_group

    @override
    def take_over(self, known: Positions) -> Positions:
        group, source = self._members_group, self._source
        # Before the offsets are read: one that is just stopping commits them once more.
        if members := self._broker.members(group, self.topic.now()):
            raise TransientError(
                f"consumer group {group} still has members ({', '.join(members)}): "
                "the connector runs. Stop it; this flow then goes on"
            )
        inherited = super().take_over(known)
        offsets = self._broker.committed_offsets(source.consumer_group, self.topic.now()).values()
        if all(one.metadata.startswith(MARK) for one in offsets):  # no file waits without one
            return inherited
        own = _in_avro(source.consumer_group)
        if any(own in event and any(f in event for f in _FILES) for event in self._events()):
            raise PermanentError(
                f"topic {self._control_topic} names files of {source.consumer_group} that are in "
                "no table yet: the connector was stopped between its workers' offsets and the "
                "commit of the tables, and these rows would be lost. Start it again, pause it, "
                "wait until it has committed (iceberg.control.commit.interval-ms), then stop it"
            )
        return inherited

    def _events(self) -> Iterator[bytes]:
        """Reads the control topic from the last commit of the connector's coordinator on."""
        name, cluster = self._control_topic, self._broker.cluster
        with closing(KafkaBroker(cluster, name)) as broker:
            (topic,) = describe([broker], 0.0)
            if isinstance(topic, PermanentError):
                raise PermanentError(
                    f"{topic}; the connector tells in it about files that are in no table yet: "
                    "correct iceberg.control.topic, or grant the right to read it"
                )
            topic = raise_if_error(topic)
            done = broker.committed_offsets(f"{self._source.consumer_group}-coord", topic)
            bounds = broker.bounds(topic)
            with closing(Peek(cluster, name)) as peek:
                for number, end in bounds.ends.items():
                    low = bounds.lows[number]
                    first = max(low, done[number].offset) if number in done else low
                    if first < end:
                        for message in peek.records(number, first, end - 1):
                            yield message.value() or b""


def _in_avro(text: str) -> bytes:
    """A text as events have it: behind its length, so that no longer name begins with it."""
    buffer = BytesIO()
    schemaless_writer(buffer, "string", text)
    return buffer.getvalue()
