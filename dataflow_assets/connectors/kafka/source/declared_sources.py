"""The Kafka sources of other languages than DataFlow manifests."""

from __future__ import annotations

from pydantic import InstanceOf
from typing_extensions import override

from dataflow_assets.connectors.kafka.options import Begin, End
from dataflow_assets.connectors.kafka.source.source import KafkaSource
from dataflow_assets.contracts import MessageFormat
from dataflow_assets.formats.parse_paths import ParsePathsFormat
from dataflow_assets.sql.bytes.layout import Layouts
from dataflow_assets.sql.bytes.messages import SqlFormat


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


class ParsedKafkaSource(KafkaSource):
    """Reads one topic; each message becomes columns of text, by parse paths.

    Made by the manifest language `justone`; DataFlow manifests do not name it.
    """

    names: tuple[str, ...]
    """The columns."""
    paths: tuple[str, ...]
    """The parse path of each."""

    @override
    def message_format(self) -> MessageFormat:
        return ParsePathsFormat(self.names, self.paths)
