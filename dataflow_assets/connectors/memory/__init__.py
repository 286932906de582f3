"""In-memory sources and sinks: doubles that are part of the product, and the model of a connector.

Together they use what other connectors do not: offset slices and part slices, sinks that commit in
each task and sinks that publish on the driver. docs/extending/connector.md walks through them.
"""

from dataflow_assets.connectors.memory.sink.sink import MemorySliceSink, MemorySpanSink
from dataflow_assets.connectors.memory.source.source import MemoryOffsetSource, MemoryPartSource
from dataflow_assets.connectors.memory.store import Store

__all__ = ["MemoryOffsetSource", "MemoryPartSource", "MemorySliceSink", "MemorySpanSink", "Store"]
