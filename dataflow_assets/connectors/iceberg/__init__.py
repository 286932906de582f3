"""Iceberg tables behind a REST catalog.

Tasks write Parquet files, the driver publishes them with the checkpoint in one commit that asserts
the table's head (commits.py). PyIceberg is imported only when a session or a writer opens.
"""

from dataflow_assets.connectors.iceberg.sink import IcebergSink

__all__ = ["IcebergSink"]
