"""Iceberg tables behind a REST catalog.

Tasks write Parquet files, the driver publishes them with the checkpoint in one commit that asserts
the table's head. A source reads snapshots in the order of the table's history, cut into ranges of
rows of data files. PyIceberg is imported
only when a session or a writer opens.
"""

from dataflow_assets.connectors.iceberg.sink.sink import IcebergSink
from dataflow_assets.connectors.iceberg.source.source import IcebergSource

__all__ = ["IcebergSink", "IcebergSource"]
