"""Sources and sinks of flows that take over from a sink connector of Kafka Connect.

A flow without a checkpoint begins where the connector's consumer group is, once the group has no
members any more: until then the connector would store what the flow reads.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from typing_extensions import override

from dataflow_assets.connectors.iceberg import IcebergSink
from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.connectors.mysql import MysqlSink
from dataflow_assets.connectors.postgresql.sink.sink import LoginSink
from dataflow_assets.contracts import Run, SinkSession, Target
from dataflow_assets.formats.message_format import MessageFormat

if TYPE_CHECKING:  # a manifest is loaded without clients
    from dataflow_assets.connectors.kafka.source.session import KafkaSourceSession


class JdbcTable(LoginSink):
    """A table that a JDBC sink has filled so far; the connector keeps no offsets beside it."""

    @override
    def open(self, target: Target, run: Run) -> SinkSession:
        from dataflow_assets.languages.connect.sessions import JdbcTableSession

        return JdbcTableSession(self, target, run)


class MysqlJdbcTable(MysqlSink):
    """A table of MySQL or MariaDB that a JDBC sink has filled so far."""

    @override
    def open(self, target: Target, run: Run) -> SinkSession:
        from dataflow_assets.languages.connect.sessions import MysqlJdbcTableSession

        return MysqlJdbcTableSession(self, target, run)


class LakeTable(IcebergSink):
    """A table that Iceberg's sink has filled so far."""

    @override
    def open(self, target: Target, run: Run) -> SinkSession:
        from dataflow_assets.languages.connect.sessions import LakeTableSession

        return LakeTableSession(self, target, run)


class JdbcTopic(KafkaSource):
    """A topic that a JDBC sink has read so far."""

    @override
    def message_format(self) -> MessageFormat | None:
        """Keys of Avro stay JSON: a text and a number are told apart where they become columns."""
        from dataflow_assets.formats.avro import AvroFormat

        inner = super().message_format()
        return replace(inner, keys_as_json=True) if isinstance(inner, AvroFormat) else inner


class LakeTopic(KafkaSource):
    """A topic that Iceberg's sink has read so far.

    Its workers commit offsets before the coordinator commits the files to the tables. In between
    the files are named in the control topic alone, so that is looked at, too.
    """

    control_topic: str
    """Where the connector's workers tell its coordinator about files."""
    members_group: str
    """The group that the connector's consumers are members of; offsets may be another one's."""

    @override
    def open(self, flow: str) -> KafkaSourceSession:
        from dataflow_assets.languages.connect.sessions import LakeTopicSession

        return LakeTopicSession(self, flow, self.control_topic, self.members_group)
