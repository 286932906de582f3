"""Contexts through which a connector and its tasks ask the worker that runs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jpype
import msgspec

from dataflow_assets.connectors.kafka_connect.spool import ConnectOffset, canonical


def offset_reader(helper: Any, left: Callable[[str], ConnectOffset | None]) -> Any:
    """Answers where each source partition was left; the values have the types that a worker gives.

    Called once, after the JVM has started; the connector and its tasks may ask at any time, from
    any thread.

    `left`: where that is, by the partition as a key of `Offsets`; None where it has none.
    """

    @jpype.JImplements("org.apache.kafka.connect.storage.OffsetStorageReader")
    class Reader:
        @jpype.JOverride
        def offset(self, partition: Any) -> Any:
            stored = left(canonical(msgspec.json.decode(bytes(helper.text(partition)))))
            return None if stored is None else helper.map(msgspec.json.encode(stored.value))

        @jpype.JOverride
        def offsets(self, partitions: Any) -> Any:
            answer = jpype.JClass("java.util.HashMap")()
            for each in partitions:
                answer.put(each, self.offset(each))
            return answer

    return Reader()


def connector_context(
    reader: Any, reconfigure: Callable[[], None], fail: Callable[[str], None]
) -> Any:
    @jpype.JImplements("org.apache.kafka.connect.source.SourceConnectorContext")
    class ConnectorContext:
        @jpype.JOverride
        def requestTaskReconfiguration(self) -> None:  # noqa: N802 - Connect's name
            reconfigure()

        @jpype.JOverride
        def raiseError(self, error: Any) -> None:  # noqa: N802 - Connect's name
            fail(str(error.toString()))

        @jpype.JOverride
        def offsetStorageReader(self) -> Any:  # noqa: N802 - Connect's name
            return reader

        @jpype.JOverride
        def pluginMetrics(self) -> Any:  # noqa: N802 - Connect's name
            return None

    return ConnectorContext()


def task_context(reader: Any, config: Any) -> Any:
    @jpype.JImplements("org.apache.kafka.connect.source.SourceTaskContext")
    class TaskContext:
        @jpype.JOverride
        def configs(self) -> Any:
            return config

        @jpype.JOverride
        def offsetStorageReader(self) -> Any:  # noqa: N802 - Connect's name
            return reader

        @jpype.JOverride
        def transactionContext(self) -> Any:  # noqa: N802 - Connect's name
            return None

        @jpype.JOverride
        def pluginMetrics(self) -> Any:  # noqa: N802 - Connect's name
            return None

    return TaskContext()
