"""Iceberg tables behind a REST catalog: of any server (`iceberg`), and of Nessie (`nessie`).

Tasks write Parquet files, the driver publishes them with the checkpoint in one commit that asserts
the table's head. A source reads snapshots in the order of the table's history, cut into ranges of
rows of data files. PyIceberg is imported only when a session or a writer opens.

Both share everything but the address, the way a table is created, and the place of its history:
Nessie's Iceberg REST catalog shows the current snapshot only.
"""

from dataflow_assets.connectors.iceberg.sink.sink import IcebergSink, NessieSink
from dataflow_assets.connectors.iceberg.source.source import IcebergSource, NessieSource

__all__ = ["IcebergSink", "IcebergSource", "NessieSink", "NessieSource"]
