"""In-memory sources and sinks: doubles that are part of the product.

Together they use what other connectors do not: offset slices and part slices, sinks that commit in
each task and sinks that publish on the driver. The store is one SQLite file in the machine's
temporary folder, so that Spark's worker processes and a second driver see it too.
"""

from dataflow_assets.connectors.memory.sink import MemorySliceSink, MemorySpanSink
from dataflow_assets.connectors.memory.source import MemoryOffsetSource, MemoryPartSource
from dataflow_assets.connectors.memory.store import Store

__all__ = ["MemoryOffsetSource", "MemoryPartSource", "MemorySliceSink", "MemorySpanSink", "Store"]
