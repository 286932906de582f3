"""The Kafka source of tables that are declared in SQL."""

from __future__ import annotations

from pydantic import InstanceOf
from typing_extensions import override

from dataflow_assets.connectors.kafka.options import Begin, End
from dataflow_assets.connectors.kafka.source.source import KafkaSource
from dataflow_assets.contracts import MessageFormat
from dataflow_assets.languages.flink.engine.bytes.layout import Layouts
from dataflow_assets.languages.flink.engine.bytes.messages import SqlFormat


class SqlKafkaSource(KafkaSource):
    """Reads the topic of a table; keys and values are those of the table's formats.

    Made by the manifest language `sql`; DataFlow manifests do not name it.
    """

    layouts: InstanceOf[Layouts]
    """What keys and values are."""

    begins_at: InstanceOf[Begin] | None = None
    """`scan.startup.specific-offsets`."""
    ends_at: InstanceOf[End] | None = None
    """`scan.bounded.*`."""

    @property
    @override
    def begin(self) -> Begin | None:
        return self.begins_at

    @property
    @override
    def end(self) -> End | None:
        return self.ends_at

    @override
    def message_format(self) -> MessageFormat:
        schemas = self.schema_registry.client() if self.schema_registry else None
        return SqlFormat(self.layouts.value, self.layouts.key, schemas)
