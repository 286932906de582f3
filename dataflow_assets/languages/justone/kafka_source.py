"""The Kafka source of JustOne's connectors: parse paths make columns of a message."""

from __future__ import annotations

from typing_extensions import override

from dataflow_assets.connectors.kafka.source.source import KafkaSource
from dataflow_assets.contracts import MessageFormat
from dataflow_assets.formats.parse_paths import ParsePathsFormat


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
